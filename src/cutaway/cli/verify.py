"""`cutaway verify MODEL`: the model and the NumPy reference, value by value."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.options import Json, Loading, Model, opens_a_model

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cutaway.cli.terminal import Table
    from cutaway.model import StandardizedTransformer
    from cutaway.verification.report import Verification


@opens_a_model
def verify(
    model: Model,
    loading: Loading,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What both run, - reads it; a few lines of Python by default."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Take the reference's weights from a checkpoint, not from the model."),
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Load no weights: random ones, from the config.")] = False,
    as_json: Json = False,
) -> None:
    """Run a Phi beside the NumPy reference. Ends with status 1 where a value parts, and says which and why."""
    from cutaway.cli.opening import open_model
    from cutaway.cli.prompts import read_prompt
    from cutaway.cli.terminal import put

    text = read_prompt(prompt) if prompt is not None else None
    opened = _randomized(model, loading) if random else open_model(model, loading, check=False)
    from cutaway.verification import verify as run

    with _progress(f"verifying {model}") as progress:
        found = run(opened, text, reference=reference, progress=progress)
    put(as_json, found.to_dict, lambda: found, lambda: _table(found))
    if not found.agrees:
        raise typer.Exit(1)


def _randomized(name: str, loading: Loading) -> StandardizedTransformer:
    from cutaway.cli.opening import open_model
    from cutaway.model import StandardizedTransformer

    of_weights = ("device", "device_map", "attn_implementation", "allow_pickle")
    options = {option: value for option, value in loading.given.items() if option in of_weights}
    opened = open_model(name, replace(loading, **dict.fromkeys(options)), dispatch=False, check=False)
    return StandardizedTransformer(
        opened.config, tokenizer=opened.tokenizer, dtype=opened.dtype, check=False, **options
    )


def _table(found: Verification) -> Table:
    from cutaway.cli.terminal import Table
    from cutaway.verification.table import sentences

    rows = [
        (
            row.name,
            "-" if row.layer is None else row.layer,
            f"{row.absolute:.1e}",
            f"{row.relative:.1e}",
            "-" if row.step is None else f"{row.step:.1e}",
            row.verdict,
        )
        for row in found.rows
    ]
    return Table(("value", "layer", "absolute", "relative", "step", "verdict"), rows, sentences(found))


@contextmanager
def _progress(what: str) -> Generator[Callable[[int, int], None]]:
    """A bar on stderr, where that is a terminal, that is gone when it is done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from cutaway.cli.terminal import console

    columns = (
        TextColumn("{task.description}", style="dim", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[dim]blocks"),
    )
    target = console(stderr=True)
    with Progress(
        *columns, TimeRemainingColumn(), console=target, transient=True, disable=not target.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
