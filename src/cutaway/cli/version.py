"""`cutaway --version`."""

from __future__ import annotations

from typing import Annotated

import typer


def _print_version(wanted: bool) -> None:
    if wanted:
        from cutaway.cli.terminal import say
        from cutaway.version import __version__

        say(f"cutaway {__version__}")
        raise typer.Exit


def version_option(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
) -> None:
    """Options of `cutaway` itself."""
