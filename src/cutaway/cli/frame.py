"""How an error ends a command."""

from __future__ import annotations

import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from cutaway.cli.options import wants_traceback
from cutaway.errors import CutawayError


class Group(TyperGroup):
    """All commands. A `CutawayError` ends one with status 1 and its message, or with `--debug` its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was given."""
        try:
            return super().invoke(ctx)
        except CutawayError as error:
            if wants_traceback(ctx):
                traceback.print_exception(error)
            else:
                typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
                typer.echo(str(error), err=True)
            raise typer.Exit(1) from error
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # typer validates choices by pydantic
            raise
