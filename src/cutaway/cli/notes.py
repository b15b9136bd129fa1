"""`cutaway notes MODEL`: the encyclopedia's notes, run on any model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.options import AllowPickle, Attention, Debug, Device, Dtype, Model, RemoteCode

if TYPE_CHECKING:
    from rich.console import Console

    from cutaway.encyclopedia import Note, Result


def notes(
    model: Model,
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose notes to run; by default the model's own family.", show_default=False),
    ] = None,
    dtype: Dtype = None,
    attn: Attention = None,
    device: Device = None,
    trust_remote_code: RemoteCode = False,
    allow_pickle: AllowPickle = False,
    debug: Debug = False,
) -> None:
    """Run a family's notes on a model.

    Prints what each claims and measured, and why one is left out; ends with status 1 where one fails.
    """
    from cutaway.cli.options import open_model, waiting

    with waiting("starting torch and transformers"):
        from cutaway.encyclopedia import NoteError, NoteNotRunError, notes_of, run_note
        from cutaway.encyclopedia.site import known_families
    if family is not None:
        known_families([family])
    opened = open_model(
        model,
        dtype=dtype,
        attn=attn,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
    )
    own = opened._subject.family.name
    if family is not None and family != own:
        raise typer.BadParameter(f"{model} is of the family '{own}', and these notes are about '{family}'.")
    from rich.console import Console
    from rich.text import Text

    console = Console()
    found = notes_of(own)
    if not found:
        console.print(f"nobody has written notes about the family '{own}' yet.")
    failed: list[str] = []
    for note in found:
        try:
            with waiting(note.title):
                result = run_note(note, opened, model)
        except NoteNotRunError as error:
            _left_out(console, note, error.why)
        except NoteError as error:
            console.print(Text("✗ ", style="bold red") + Text(note.title, style="bold"), end="\n\n")
            failed.append(str(error))
        else:
            if result.does_not_apply:
                _left_out(console, note, result.does_not_apply)
            else:
                _show(console, result)
    if failed:
        raise NoteError("\n\n".join(failed))


def _left_out(console: Console, note: Note, why: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from cutaway.inspection.printout.terminal_support import prose

    console.print(Text("– ", style="dim") + Text(note.title, style="bold"))
    console.print(Padding(Text("left out: ") + prose(why), (0, 0, 1, 2)))


def _show(console: Console, result: Result) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from cutaway.inspection.printout.terminal_support import prose

    console.print(Text("✓ ", style="bold green") + Text(result.note.title, style="bold"))
    console.print(Padding(prose(" ".join(result.claim.split())), (0, 0, 0, 2)))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, figure in result.figures.items():
        table.add_row(prose(result.note.figures[name]), prose(figure))
    console.print(Padding(table, (0, 0, 1, 2)))
