"""The command line: `cutaway demo`, `show`, `support`, `check`, `verify`, `read`, `picture`, `view`,
`notes`, `families` and `encyclopedia`.

It is thin: a command opens a model and prints what the library gives it. Whatever is slow to import is imported inside
the commands, so that `cutaway --help` is there at once.
"""

from __future__ import annotations

import typer

from cutaway.cli.check import check
from cutaway.cli.demo import demo
from cutaway.cli.encyclopedia import encyclopedia
from cutaway.cli.families import families
from cutaway.cli.frame import Group
from cutaway.cli.notes import notes
from cutaway.cli.picture import picture, view
from cutaway.cli.process import prepared
from cutaway.cli.read import read
from cutaway.cli.show import show
from cutaway.cli.support import support
from cutaway.cli.verify import verify
from cutaway.cli.version import version_option

app = typer.Typer(
    name="cutaway",
    cls=Group,
    help="Standard names for the insides of transformers: read, edit and look at any value of a forward pass.",
    epilog=(
        "MODEL is a hub id, a local folder, or the built-in phi-mini. "
        "Ends with status 0 where all went well, 1 where something failed or does not hold, 2 where the command was "
        "wrong, and 130 where it was interrupted; an error is one line on stderr."
    ),
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    callback=version_option,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (demo, show, support, check, verify, read, picture, view, notes, families):
    app.command()(command)
app.add_typer(encyclopedia, name="encyclopedia")


def main() -> None:
    """The entry point."""
    with prepared():
        app(prog_name="cutaway")


__all__ = ["app", "main"]
