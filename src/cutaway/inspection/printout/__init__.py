"""How a model and its support look: in a terminal, as plain text, and in a notebook.

`tree` says what there is to show, as data; each of the others shows it in one medium.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cutaway.inspection.printout.notebook_support import support_html
from cutaway.inspection.printout.notebook_tree import tree_html
from cutaway.inspection.printout.terminal_support import SupportTable, support_text
from cutaway.inspection.printout.terminal_tree import TreeView, tree_text
from cutaway.inspection.printout.tree import Tree, find_block, module_line, part_of, tree_of
from cutaway.subject.subject import Subject

if TYPE_CHECKING:
    from cutaway.inspection.rows import SupportRows


def text(subject: Subject, edits: str = "") -> str:
    """What `print(model)` shows: ASCII, indented, layouts in one column. `edits` are told where there are any."""
    return tree_text(_edited(tree_of(subject), edits))


def unbroken_text(subject: Subject) -> str:
    """The same with no line broken and one size a line, for other programs to read."""
    return tree_text(tree_of(subject), width=None)


def rich_text(subject: Subject, edits: str = "") -> TreeView:
    """The same for rich: with lines that lead from a module to what it holds, and colours."""
    return TreeView(_edited(tree_of(subject), edits))


def rich_block(subject: Subject) -> TreeView:
    """The part of it that is the layers: one block, or where blocks differ, one of each kind."""
    return TreeView(find_block(tree_of(subject)), header=False)


def part_text(subject: Subject, module_path: str) -> str:
    """What `print` shows of one module of the model: the part of the tree that it is."""
    return tree_text(part_of(subject, module_path), header=False)


def part_html(subject: Subject, module_path: str) -> str:
    """The same for a notebook."""
    return tree_html(part_of(subject, module_path), header=False)


def html(subject: Subject, edits: str = "") -> str:
    """The same for a notebook: modules open and close."""
    return tree_html(_edited(tree_of(subject), edits))


def support_rich(support: SupportRows) -> SupportTable:
    """A support as a table for rich."""
    return SupportTable(support)


def _edited(tree: Tree, edits: str) -> Tree:
    return replace(tree, load=f"{tree.load}; edited: {edits}") if edits else tree


__all__ = [
    "html",
    "module_line",
    "part_html",
    "part_text",
    "rich_block",
    "rich_text",
    "support_html",
    "support_rich",
    "support_text",
    "text",
    "tree_of",
    "unbroken_text",
]
