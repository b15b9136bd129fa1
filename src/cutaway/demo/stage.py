"""The stage: where the demo is shown. It prints to the terminal, and where a picture is wanted, to that too."""

from __future__ import annotations

import inspect
import io
import re
import textwrap
from collections.abc import Callable
from typing import Any

from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from cutaway.inspection.printout.terminal_support import prose

WIDTH = 88
"""The width of the picture, in columns."""

_CODE = ANSISyntaxTheme(
    {
        Token: Style(),
        Comment: Style(dim=True, italic=True),
        Keyword: Style(bold=True),
        Keyword.Constant: Style(),
        Name.Builtin: Style(),
        Number: Style(color="cyan"),
        String: Style(color="cyan"),
        Operator: Style(),
    }
)

_PICTURE = TerminalTheme(
    (22, 24, 29),
    (222, 225, 231),
    [
        (22, 24, 29),
        (240, 113, 120),
        (138, 196, 128),
        (229, 192, 123),
        (110, 160, 240),
        (229, 143, 220),
        (110, 197, 210),
        (200, 204, 212),
    ],
)


class Stage:
    """Shows steps, their code, and what came of it."""

    def __init__(self, console: Console, picture: bool = False) -> None:
        self._consoles = [console]
        if picture:
            self._consoles.append(
                Console(
                    file=io.StringIO(),
                    record=True,
                    width=WIDTH,
                    force_terminal=True,
                    color_system="standard",
                    no_color=False,
                )
            )
        self._steps = 0

    def step(self, title: str) -> None:
        """Opens a numbered step."""
        self._steps += 1
        for console in self._consoles:
            line = "─" * max(min(console.width, 100) - len(title) - 7, 2)
            console.print()
            console.print(
                Text.assemble((f"── {self._steps} ", "dim"), (title, "bold"), (f" {line}", "dim"), no_wrap=True)
            )
            console.print()

    def code(self, function: Callable[..., Any]) -> None:
        """Shows a function: its docstring as prose, and below it the rest of its source."""
        self.say(inspect.getdoc(function) or "")
        self.python(source(function))

    def python(self, text: str) -> None:
        """Shows a text in Python's colours."""
        self.show(Syntax(text, "python", theme=_CODE, background_color="default", word_wrap=True))

    def say(self, sentence: str) -> None:
        """Shows a sentence, names in backticks standing out."""
        self.show(prose(sentence))

    def show(self, thing: RenderableType) -> None:
        """Shows anything that rich can, set in a little, with an empty line after it."""
        for console in self._consoles:
            width = min(console.width, 100) if console.is_terminal else console.width
            console.print(Padding(thing, (0, 2, 0, 2), expand=False), width=width)
            console.print()

    def drawn(self) -> str:
        """What was shown, as an SVG file that needs nothing else: the fonts are the reader's own."""
        form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        form = form.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
        return self._consoles[-1].export_svg(
            title="cutaway demo", theme=_PICTURE, code_format=form, unique_id="cutaway-demo"
        )


def source(function: Callable[..., Any]) -> str:
    """A function's source without its docstring."""
    lines = textwrap.dedent(inspect.getsource(function)).rstrip().split("\n")
    first = next(i for i, line in enumerate(lines) if line.lstrip().startswith('"""'))
    last = next(i for i in range(first, len(lines)) if lines[i].rstrip().endswith('"""') and len(lines[i].strip()) > 3)
    return "\n".join(lines[:first] + lines[last + 1 :])
