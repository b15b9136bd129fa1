"""A printout in a terminal and as plain text.

Plain text is ASCII, so that it can be printed and kept anywhere; rich's has lines that lead from a module to what it
holds. Both set the layouts in one column and stay within 80 columns for models whose names do. Colours are the
terminal's own sixteen, and of these only one that reads well on dark and on light.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from cutaway.inspection.printout.tree import ModuleNode, Tree, ValueLine

STYLES: dict[str, str] = {
    "title": "bold",
    "load": "",
    "size": "dim",
    "guide": "dim",
    "name": "",
    "standard": "bold",
    "class": "dim",
    "value": "magenta",
    "layout": "",
    "aside": "dim italic",
    "missing": "dim",
}
"""How each kind of word looks in a terminal."""

Line = Sequence[tuple[str, str]]
"""A line's words, each with its kind, a key of `STYLES`."""


@dataclass(frozen=True)
class Guides:
    """What stands before a line: for a module that others follow, for the last one, and for what they hold."""

    more: str
    last: str
    within_more: str
    within_last: str


_INDENT = Guides("  ", "  ", "  ", "  ")
_LINES = Guides("├─ ", "└─ ", "│  ", "   ")


class TreeView:
    """A printout for rich's consoles."""

    def __init__(self, tree: Tree, *, header: bool = True) -> None:
        self._tree = tree
        self._header = header

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        guides = _INDENT if options.ascii_only else _LINES
        for line in _lines(self._tree, guides, options.max_width, header=self._header):
            yield Text.assemble(*((words, STYLES[kind]) for words, kind in line), overflow="fold")


def tree_text(tree: Tree, width: int | None = 80, *, header: bool = True) -> str:
    """A printout as ASCII text; only what is said of a missing value is broken at `width`, and nothing without one."""
    lines = _lines(tree, _INDENT, width, header=header)
    return "\n".join("".join(words for words, _ in line).rstrip() for line in lines)


def _lines(tree: Tree, guides: Guides, width: int | None, *, header: bool = True) -> Iterator[Line]:
    if header:
        yield [(tree.name, "title")]
        yield from ([(part, "load")] for part in _broken(tree.load, width))
        yield []
        yield from _sizes(tree, width)
        yield []
    yield from _node(tree.root, guides, "", "", _column(tree.root, len(guides.more), 0), width)


def _broken(text: str, width: int | None) -> list[str]:
    return textwrap.wrap(text, width) if width else [text]


def _sizes(tree: Tree, width: int | None) -> Iterator[Line]:
    """The sizes in as many columns as there is room for, names and numbers aligned; in one without a width."""
    items = list(tree.sizes.items())
    columns = 1 if width is None else 4 if width >= 100 else 2
    rows = -(-len(items) // columns)
    for row in range(rows):
        line: list[tuple[str, str]] = []
        for column in range(columns):
            cells = items[column * rows : (column + 1) * rows]
            if row < len(cells):
                name, size = cells[row]
                left = max(len(name) for name, _ in cells)
                right = max(len(str(size)) for _, size in cells)
                line += [("   " if column else "", "guide"), (name.ljust(left + 1), "size")]
                line += [(str(size).rjust(right), "layout")]
        yield line


def _column(node: ModuleNode, step: int, depth: int) -> int:
    """The column in which layouts stand: two past the longest value name, its indent included."""
    own = (step * (depth + 1) + len(value.name) + 2 for value in node.values)
    below = (_column(child, step, depth + 1) for child in node.children)
    return max([*own, *below], default=0)


def _node(node: ModuleNode, guides: Guides, before: str, within: str, column: int, width: int | None) -> Iterator[Line]:
    yield [(before, "guide"), *_module(node)]
    inner = within + (guides.within_more if node.children else guides.within_last)
    for value in node.values:
        yield from _value(value, inner, column, width)
    if node.weights:
        for part in _broken(f"weights: {' '.join(node.weights)}", width and max(width - len(inner), 24)):
            yield [(inner, "guide"), (part, "aside")]
    for i, child in enumerate(node.children):
        last = i == len(node.children) - 1
        mark, below = (guides.last, guides.within_last) if last else (guides.more, guides.within_more)
        yield from _node(child, guides, within + mark, within + below, column, width)


def _module(node: ModuleNode) -> Line:
    line: list[tuple[str, str]] = []
    if node.standard:
        line = [("(", "class"), (node.standard, "standard"), (f"/{node.key}", "name"), ("): ", "class")]
    elif node.key:
        line = [("(", "class"), (node.key, "name"), ("): ", "class")]
    line.append((node.what, "class" if node.key else "standard"))
    return [*line, (f"  differs: {node.differs}", "aside")] if node.differs else line


def _value(value: ValueLine, within: str, column: int, width: int | None) -> Iterator[Line]:
    gap = " " * (column - len(within) - len(value.name))
    if not value.missing:
        aside = "  read-only" if value.read_only else ""
        yield [(within, "guide"), (value.name, "value"), (gap + value.layout, "layout"), (aside, "aside")]
        return
    first, *more = _broken(f"not here: {value.missing}", width and max(width - column, 24))
    yield [(within, "guide"), (value.name + gap, "missing"), (first, "aside")]
    for part in more:
        yield [(within.ljust(column), "guide"), (part, "aside")]
