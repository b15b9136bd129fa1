"""`cutaway notes MODEL`: the encyclopedia's notes, run on any model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.options import AllowPickle, Attention, Debug, Device, Dtype, Model, RemoteCode

if TYPE_CHECKING:
    from rich.console import Console

    from cutaway.encyclopedia import Result


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
    """Run a family's notes on a model. Prints what each claims and measured; ends with status 1 at one that fails."""
    from cutaway.cli.options import open_model, waiting

    with waiting("starting torch and transformers"):
        from cutaway.encyclopedia import notes_of, run_note
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

    console = Console()
    found = notes_of(own)
    if not found:
        console.print(f"nobody has written notes about the family '{own}' yet.")
    for note in found:
        with waiting(note.title):
            result = run_note(note, opened, model)
        _show(console, result)


def _show(console: Console, result: Result) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from cutaway.model.printout.terminal_support import prose

    mark = Text("– ", style="dim") if result.does_not_apply else Text("✓ ", style="bold green")
    console.print(mark + Text(result.note.title, style="bold"))
    console.print(Padding(prose(" ".join(result.claim.split())), (0, 0, 0, 2)))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, figure in result.figures.items():
        table.add_row(prose(result.note.figures[name]), prose(figure))
    console.print(Padding(table, (0, 0, 1, 2)))
