"""The command line: `cutaway demo`, `show`, `support`, `check`, `verify`, `read`, `picture`, `view`,
`notes` and `encyclopedia`.

It is thin: a command opens a model and prints what the library gives it. Whatever is slow to import is imported inside
the commands, so that `cutaway --help` is there at once.
"""

from __future__ import annotations

import os
import sys

import typer

from cutaway.cli.check import check
from cutaway.cli.demo import demo
from cutaway.cli.encyclopedia import encyclopedia
from cutaway.cli.frame import Group
from cutaway.cli.notes import notes
from cutaway.cli.picture import picture, view
from cutaway.cli.read import read
from cutaway.cli.show import show
from cutaway.cli.support import support
from cutaway.cli.verify import verify
from cutaway.cli.version import version_option

app = typer.Typer(
    name="cutaway",
    cls=Group,
    help="Standard names for the insides of transformers: read, edit and look at any value of a forward pass.",
    epilog="MODEL is a hub id, a local folder, or the built-in phi-mini.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    callback=version_option,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (demo, show, support, check, verify, read, picture, view, notes):
    app.command(no_args_is_help=command is not demo)(command)
app.add_typer(encyclopedia, name="encyclopedia")


def main() -> None:
    """The entry point.

    Characters that the terminal's encoding lacks are replaced, so that printing cannot fail, and transformers' progress
    bars are left out where nobody watches them.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    app(prog_name="cutaway")


__all__ = ["app", "main"]
