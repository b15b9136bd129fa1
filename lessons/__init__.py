"""Lessons: pages whose code is run when they are built, and whose every figure is what it printed.

A lesson's source is Markdown in this folder; `build` makes the page in `docs/`. The tests build it again and fail where
the page in the tree is another.
"""
