"""Builds a page from a lesson's source: runs what is to be run, and puts in what came of it.

A fenced block of the source says by its first line what becomes of it:

    ```python            is run and shown, with what it printed below
    ```python hidden     is run and not shown: set-up, and assertions of what the text says
    ```python figure=x   is run and shown; its last line is a picture, which stands below as docs/figures/x
    ```source            each line names something in `cutaway.reference`, whose own source is shown

and `{{expression}}` in the text is the value of an expression. All code of a page shares one namespace, in which it
runs from top to bottom.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import textwrap
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import cutaway

_FENCE = re.compile(r"^```(\S+)[ ]?([^\n]*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"\{\{(.+?)\}\}")
_PACKAGE = Path(cutaway.__file__).parent


class LessonError(Exception):
    """A block of a lesson that cannot be run; the message says which, and shows its code."""


@dataclass
class Page:
    """A built page.

    Attributes:
        text: the Markdown.
        figures: the pictures' bytes by file name.
    """

    text: str
    figures: dict[str, bytes] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Writes the page, and its figures into a folder `figures` beside it."""
        folder = path.parent / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text, encoding="utf-8", newline="\n")
        for name, content in self.figures.items():
            (folder / name).write_bytes(content)


def build(source: str, name: str) -> Page:
    """Runs a lesson's source.

    Args:
        source: the text of the source.
        name: the file it is from, for messages and for the notice at the head of the page.

    Raises:
        LessonError: a block fails.
    """
    page = Page("")
    scope: dict[str, Any] = {"__name__": "__lesson__"}
    end = 0
    for block in _FENCE.finditer(source):
        page.text += _filled(source[end : block.start()], scope, name)
        language, words, code = block.groups()
        end = block.end()
        where = f"{name}, line {source.count(chr(10), 0, block.start()) + 1}"
        if language == "source":
            page.text += "\n".join(_source(path) for path in code.split())
        elif language == "python":
            page.text += _run(code, words.split(), scope, where, page)
        else:
            page.text += block.group()
    page.text += _filled(source[end:], scope, name)
    return page


def _filled(text: str, scope: dict[str, Any], name: str) -> str:
    def value(match: re.Match[str]) -> str:
        try:
            return str(eval(match[1], scope))
        except Exception as error:
            raise LessonError(f"{name}: {{{{{match[1]}}}}} fails: {error!r}") from error

    return _INLINE.sub(value, text)


def _run(code: str, words: list[str], scope: dict[str, Any], where: str, page: Page) -> str:
    figure = next((word.removeprefix("figure=") for word in words if word.startswith("figure=")), None)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            last = _execute(code, where, scope)
    except Exception as error:
        raise LessonError(f"{where}: {error!r}\n{code}") from error
    if "hidden" in words:
        return ""
    shown = f"```python\n{code}```\n"
    if printed.getvalue():
        lines = [line.rstrip() for line in printed.getvalue().rstrip().split("\n")]
        shown += "\n```text\n" + "\n".join(lines) + "\n```\n"
    if figure is not None:
        page.figures[figure] = last.to_svg().encode() if figure.endswith(".svg") else last.to_png(dpi=130)
        shown += f"\n![{last.title}. {last.description}](figures/{figure})\n"
    return shown


def _execute(code: str, where: str, scope: dict[str, Any]) -> Any:
    """Runs a block, and gives the value of its last line where that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), scope)
    return eval(compile(ast.Expression(last.value), where, "eval"), scope) if isinstance(last, ast.Expr) else None


def _source(path: str) -> str:
    """Something's source without its docstring, and a line that says where it stands."""
    module, _, rest = path.partition(":")
    found: Any = import_module(f"cutaway.reference.{module}")
    for word in rest.split("."):
        found = getattr(found, word)
    file = Path(inspect.getsourcefile(found) or "").relative_to(_PACKAGE)
    code = _without_docstrings(textwrap.dedent(inspect.getsource(found)))
    link = f"[`{file.as_posix()}`](../src/cutaway/{file.as_posix()})"
    return f"{link}\n```python\n{code}\n```\n"


def _without_docstrings(code: str) -> str:
    lines = code.rstrip().split("\n")
    gone: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            first = node.body[0]
            gone.update(range(first.lineno - 1, first.end_lineno or first.lineno))
            after = first.end_lineno or first.lineno
            if after < len(lines) and not lines[after].strip() and isinstance(node, ast.FunctionDef):
                gone.add(after)
    return "\n".join(line for i, line in enumerate(lines) if i not in gone)
