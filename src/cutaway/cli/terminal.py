"""What the commands print: to a terminal as wide as that is, and to a pipe or a file one row a line.

A table in a pipe has its columns' names in its first line, tabs between, and neither colours nor padding nor breaks, so
that `cut` and `awk` can read it; what is to be said beyond the table follows after an empty line.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from cutaway.errors import InputError, OutputError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_NARROWEST, _USUAL, _UNBROKEN = 20, 80, 10_000


def is_terminal() -> bool:
    """Whether what is printed is looked at in a terminal."""
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> Console:
    """A console of rich's. Where a terminal does not know its width, or says what nothing fits, it has 80 columns."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    if not stream.isatty():
        return Console(stderr=stderr, width=_UNBROKEN, highlight=False)
    made = Console(stderr=stderr, highlight=False)
    if made.width < _NARROWEST:
        made.width = _USUAL
    return made


def unpadded_console() -> Console:
    """A console for what is printed piece by piece; in a pipe no line is broken, or has blanks at its end."""
    from rich.console import Console

    if is_terminal():
        return console()
    return Console(file=_Unpadded(), width=_UNBROKEN, highlight=False)


class _Unpadded(io.TextIOWrapper):
    """Standard output, to rich, which hands it whole lines."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), _encoding())

    def write(self, text: str, /) -> int:
        _write(without_trailing_blanks(text).encode(_encoding(), "replace"))
        return len(text)


def say(text: str) -> None:
    """Prints a text as it is, to be broken by the terminal if need be.

    Raises:
        OutputError: standard output cannot be written.
    """
    _write(f"{text}\n".encode(_encoding(), "replace"))


def show(thing: RenderableType) -> None:
    """Prints what rich can show, to a terminal.

    Raises:
        OutputError: standard output cannot be written.
    """
    target = console()
    with target.capture() as captured:
        target.print(thing)
    _write(captured.get().encode(_encoding(), "replace"))


class Table(NamedTuple):
    """A table for a pipe: the names of its columns, its rows, and sentences below it."""

    header: Sequence[str]
    rows: Iterable[Sequence[object]]
    below: Sequence[str] = ()

    def text(self) -> str:
        """As it is printed."""
        lines = ["\t".join(" ".join(str(cell).split()) or "-" for cell in row) for row in (self.header, *self.rows)]
        said = [" ".join(sentence.split()) for sentence in self.below if sentence]
        return "\n".join([*lines, *(["", *said] if said else [])])


def put(
    as_json: bool,
    data: Callable[[], Mapping[str, Any]],
    shown: Callable[[], RenderableType],
    piped: Callable[[], Table | str],
) -> None:
    """Prints what a command found in the form that fits: as JSON where that was asked for, to a terminal what rich can
    show, to a pipe a table or a text.

    Raises:
        OutputError: standard output cannot be written.
    """
    if as_json:
        print_json(data())
    elif is_terminal():
        show(shown())
    else:
        content = piped()
        say(content if isinstance(content, str) else content.text())


def print_json(data: Mapping[str, Any]) -> None:
    """Prints data as JSON. A figure that is not finite is null, for JSON has no word for it.

    Raises:
        OutputError: standard output cannot be written.
    """
    say(json.dumps(_finite(data), indent=2, allow_nan=False))


def write_bytes(content: bytes) -> None:
    """Writes a file's content to standard output.

    Raises:
        InputError: a terminal would show it.
        OutputError: standard output cannot be written.
    """
    if is_terminal():
        raise InputError("a terminal cannot show this file; lead standard output into a file or a pipe.")
    _write(content)


def waiting(what: str) -> AbstractContextManager[Any]:
    """A sign on stderr, where that is a terminal, that something takes a moment."""
    from rich.markup import escape

    return console(stderr=True).status(f"[dim]{escape(what)}[/dim]", spinner="dots")


def told(kind: str, message: str) -> None:
    """Says on stderr in one line what is wrong, `error: no such file`; where stderr is not to be had, nobody."""
    from rich.text import Text

    style = "bold red" if kind == "error" else "bold yellow"
    line = Text.assemble((f"{kind}: ", style), " ".join(message.split()))
    try:
        console(stderr=True).print(line, soft_wrap=True)
    except (OSError, ValueError):
        return


def let_go() -> None:
    """Leads standard output nowhere, so that what is left in its buffer is no second error when Python ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return


def without_trailing_blanks(text: str) -> str:
    """The same lines without blanks at their ends."""
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _write(content: bytes) -> None:
    """To standard output, whole: a pipe that is closed is left to `Group`."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror or error}.") from error


def _encoding() -> str:
    return sys.stdout.encoding or "utf-8"


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
