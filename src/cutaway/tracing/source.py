"""The calls inside a function, found in its source, and a copy of the function in which each can be watched.

A call is named after the called expression and a number: `self.q_proj(...)` is `self_q_proj_0`, a second one
`self_q_proj_1`; of a chain such as `self.q_proj(x).view(...)` the later call is `view_0`. The copy differs from the
original in its calls alone, which go through a `watch(operation, function, *args, **kwargs)`; its globals, its
closure, its defaults, its decorators and its line numbers are the original's.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any

from cutaway.errors import UnavailableValueError

WATCH = "__cutaway_watch__"
_UNWATCHED = {"super", "locals", "globals", "vars", "eval", "exec", "dir"}
"""Calls that look at the frame they are made in, which a watch would stand between."""


@dataclass(frozen=True)
class Operation:
    """A call in a function's source.

    Attributes:
        index: its place in the order of evaluation.
        line: its line in the file.
        text: the call as it is written.
    """

    name: str
    index: int
    line: int
    text: str


@dataclass(frozen=True)
class FunctionSource:
    """A function's source and the calls in it, in the order of evaluation."""

    qualified_name: str
    file: str
    first_line: int
    text: str
    operations: tuple[Operation, ...]

    def __getitem__(self, name: str) -> Operation:
        return next(operation for operation in self.operations if operation.name == name)

    def annotated(self) -> str:
        """The source, with the names of the operations behind the lines in which they begin."""
        by_line: dict[int, list[str]] = {}
        for operation in self.operations:
            by_line.setdefault(operation.line, []).append(operation.name)
        lines = self.text.splitlines()
        width = min(max(map(len, lines)), 88)
        shown = [f"{self.qualified_name}  ({self.file}:{self.first_line})"]
        for number, line in enumerate(lines, self.first_line):
            names = ", ".join(by_line.get(number, []))
            shown.append(f"{number:5d} {line:<{width}}  ← {names}" if names else f"{number:5d} {line}")
        return "\n".join(shown)


def innermost(function: Callable[..., Any]) -> FunctionType:
    """A function without its decorators.

    Raises:
        UnavailableValueError: it is not written in Python.
    """
    found = inspect.unwrap(function)
    found = getattr(found, "__func__", found)
    if not isinstance(found, FunctionType):
        raise UnavailableValueError(
            f"{getattr(found, '__name__', found)!s} is not a Python function: it has no source."
        )
    return found


@lru_cache(maxsize=256)
def source_of(function: FunctionType) -> FunctionSource:
    """A function's source and operations.

    Raises:
        UnavailableValueError: there is no source.
    """
    tree, lines, first = _parse(function)
    operations = _Operations(first)
    operations.visit(tree)
    return FunctionSource(
        function.__qualname__, inspect.getsourcefile(function) or "?", first, "".join(lines), tuple(operations.found)
    )


def _parse(function: FunctionType) -> tuple[ast.FunctionDef, list[str], int]:
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError as error:
        raise UnavailableValueError(f"the source of {function.__qualname__} is not to be had: {error}.") from error
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise UnavailableValueError(f"{function.__qualname__} is not a plain function.")
    tree.decorator_list = []
    return tree, lines, first


class _Operations(ast.NodeTransformer):
    """Names the calls in the order of evaluation; as a transformer it also puts the watch around each."""

    def __init__(self, first_line: int, rewrite: bool = False) -> None:
        self.found: list[Operation] = []
        self._first = first_line
        self._rewrite = rewrite
        self._counts: Counter[str] = Counter()
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self._depth:
            return node  # what a nested function calls is called when it is, if ever
        self._depth += 1
        for statement in node.body:
            self.visit(statement)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _name(node.func)
        text = ast.unparse(node) if not self._rewrite else ""
        self.generic_visit(node)
        if name in _UNWATCHED:
            return node
        numbered = f"{name}_{self._counts[name]}"
        self._counts[name] += 1
        self.found.append(Operation(numbered, len(self.found), self._first + node.lineno - 1, text))
        if not self._rewrite:
            return node
        watched = ast.Call(
            func=ast.Name(WATCH, ast.Load()),
            args=[ast.Constant(numbered), node.func, *node.args],
            keywords=node.keywords,
        )
        return ast.copy_location(watched, node)


def _name(called: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(called, ast.Attribute):
        parts.append(called.attr)
        called = called.value
    if isinstance(called, ast.Name):
        parts.append(called.id)
    return "_".join(reversed(parts)) or "call"


def watched_copy(function: Callable[..., Any], watch: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function, decorators included, whose calls go through `watch`."""
    inner = innermost(function)
    code = _watched_code(inner)
    cells = dict(zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True))
    cells[WATCH] = CellType(watch)
    closure = tuple(cells[name] for name in code.co_freevars)
    copy = FunctionType(code, inner.__globals__, inner.__name__, inner.__defaults__, closure)
    copy.__kwdefaults__ = inner.__kwdefaults__
    return _redecorate(getattr(function, "__func__", function), inner, copy)


@lru_cache(maxsize=256)
def _watched_code(function: FunctionType) -> CodeType:
    tree, _, first = _parse(function)
    _Operations(first, rewrite=True).visit(tree)
    free = [*function.__code__.co_freevars, WATCH]
    factory = ast.FunctionDef(
        name="factory",
        args=ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, []),
        body=[tree],
        decorator_list=[],
    )
    module = ast.fix_missing_locations(ast.Module([factory], []))
    ast.increment_lineno(module, first - 1)
    compiled = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
    return _code_named(_code_named(compiled, "factory"), function.__name__)


def _code_named(code: CodeType, name: str) -> CodeType:
    return next(const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == name)


def _redecorate(outer: Callable[..., Any], inner: FunctionType, copy: Callable[..., Any]) -> Callable[..., Any]:
    """The decorators of `outer` around `copy` in the place of `inner`, by the closures that hold what they decorate."""
    if outer is inner:
        return copy
    wrapped = getattr(outer, "__wrapped__", None)
    if not isinstance(outer, FunctionType) or wrapped is None:
        raise UnavailableValueError(f"{inner.__qualname__} is decorated in a way that its copy cannot be.")
    below = _redecorate(wrapped, inner, copy)
    cells = tuple(CellType(below) if _holds(cell, wrapped) else cell for cell in (outer.__closure__ or ()))
    decorated = FunctionType(outer.__code__, outer.__globals__, outer.__name__, outer.__defaults__, cells)
    decorated.__kwdefaults__ = outer.__kwdefaults__
    decorated.__wrapped__ = below  # type: ignore[attr-defined]
    return decorated


def _holds(cell: CellType, thing: object) -> bool:
    try:
        return cell.cell_contents is thing
    except ValueError:
        return False
