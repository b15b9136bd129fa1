"""`cutaway verify MODEL`: the model and the NumPy reference, value by value."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.options import AllowPickle, Attention, Debug, Device, Dtype, Model, RemoteCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


def verify(
    model: Model,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What both run; a few lines of Python by default.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Take the reference's weights from a checkpoint, not from the model."),
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Load no weights: random ones, from the config.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every figure as data.")] = False,
    dtype: Dtype = None,
    attn: Attention = None,
    device: Device = None,
    trust_remote_code: RemoteCode = False,
    allow_pickle: AllowPickle = False,
    debug: Debug = False,
) -> None:
    """Run a Phi beside the NumPy reference. Ends with status 1 where a value parts, and says which and why."""
    from cutaway.cli.options import open_model

    opened = open_model(
        model,
        dtype=dtype,
        attn=attn,
        device=None if random else device,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        dispatch=not random,
        check=False,
    )
    if random:
        from cutaway.model import StandardizedTransformer

        opened = StandardizedTransformer(
            opened.config,
            tokenizer=opened.tokenizer,
            dtype=opened.dtype,
            device=device,
            attn_implementation=attn,
            check=False,
        )
    from cutaway.verification import verify as run

    with _progress(f"verifying {model}") as progress:
        found = run(opened, prompt, reference=reference, progress=progress)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        from rich.console import Console

        Console().print(found)
    if not found.agrees:
        raise typer.Exit(1)


@contextmanager
def _progress(what: str) -> Generator[Callable[[int, int], None]]:
    """A bar on stderr, where that is a terminal, that is gone when it is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("[dim]{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("[dim]blocks"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
