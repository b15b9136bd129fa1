"""How a command ends: in one line and a status, whatever went wrong.

0: it is done. 1: what was asked for failed, or did not hold. 2: the command was wrong, so that nothing was done. 130:
it was interrupted. An error is a line on stderr that begins with `error: `; with `--debug` its traceback.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from cutaway.cli.options import flags
from cutaway.cli.terminal import let_go, told
from cutaway.errors import (
    AlreadyThereError,
    CutawayError,
    InputError,
    UnavailableValueError,
    UnknownModelError,
    UnknownValueError,
)

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130

_WRONG = (InputError, UnknownValueError, UnavailableValueError, UnknownModelError, AlreadyThereError)

_UsageError = typer.BadParameter.__mro__[1]
"""typer's class for every wrong use, which it exports under no name."""

_IN_PYTHON = {
    "pass trust_remote_code=True": "say --trust-remote-code",
    "pass allow_pickle=True": "say --allow-pickle",
    "attn_implementation='sdpa'": "--attn sdpa",
    "attn_implementation='eager'": "--attn eager",
    "dtype=torch.bfloat16": "--dtype bfloat16",
    "dtype=torch.float32": "--dtype float32",
    "dispatch=False": "`cutaway show`",
    "check=False": "check=False in Python",
}
"""What messages say to callers in Python, and how it is said on the command line."""


class Group(TyperGroup):
    """A group of commands; without any, its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes the group's own words off the command line."""
        return super().parse_args(ctx, args or ["--help"])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line, and ends the process with its status."""
        words = list(sys.argv[1:] if args is None else args)
        call = super().main

        def run() -> Any:
            return call(words, prog_name, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return run()
        options = words[: words.index("--")] if "--" in words else words
        sys.exit(_status_of(run, debug="--debug" in options))


def _status_of(run: Callable[[], Any], *, debug: bool) -> int:
    """Runs a command line; its status, once what went wrong has been said."""
    try:
        returned = run()  # a command's status, or None
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on, which is not an error of ours
        let_go()
        return FAILED
    except Exception as error:
        let_go()
        if debug and not isinstance(error, _UsageError):
            traceback.print_exception(error)
        else:
            told("error", _line(error))
        return WRONG_USE if isinstance(error, (_UsageError, *_WRONG)) else FAILED
    if returned == INTERRUPTED:
        let_go()
        told("error", "interrupted.")
    return returned if isinstance(returned, int) else 0


def _line(error: Exception) -> str:
    if isinstance(error, _UsageError):
        return _usage(error)
    if isinstance(error, CutawayError):
        return on_command_line(str(error))
    if isinstance(error, OSError) and error.filename is None and error.errno is not None:
        return f"standard output cannot be written: {error.strerror}."
    if isinstance(error, typer.TyperException):
        return error.format_message()
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first} (--debug shows where it came from)"


def _usage(error: Any) -> str:
    message = error.format_message().replace("Value error, ", "").strip()
    near = re.fullmatch(r"(.*?) \(Possible options: (.*)\)", message)
    if near:
        message = f"{near[1]}. Did you mean {near[2].replace(', ', ' or ')}?"
    message = message[:1].lower() + message[1:]
    message = message if message.endswith((".", "?")) else f"{message}."
    context = getattr(error, "ctx", None)
    return f"{message} See `{context.command_path} --help`." if context is not None else message


def on_command_line(message: str) -> str:
    """A message of the library, in the words of the command line."""
    for python, words in _IN_PYTHON.items():
        message = message.replace(python, words)
    for option, flag in flags().items():
        message = message.replace(f"`{option}`", flag)
    return message
