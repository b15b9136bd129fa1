"""`cutaway demo`: the main things Cutaway does, on the built-in checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.options import Debug
from cutaway.cli.picture import refuse_unwritable


def demo(
    model: Annotated[str, typer.Option(metavar="MODEL", help="A Phi that has a tokenizer.")] = "phi-mini",
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw what is shown to an SVG file, too.", show_default=False)
    ] = None,
    page: Annotated[Path, typer.Option(metavar="FILE", help="Where the attention page is written.")] = Path(
        "phi-mini-attention.html"
    ),
    step: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=1, max=5, help="Show this step alone; may be given again.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """See Cutaway at work. Names, an edit, an identity, an induction head, and what stopping early skips."""
    from cutaway.cli.options import waiting

    with waiting("starting torch and transformers"):
        from cutaway.demo import run
    from rich.console import Console

    refuse_unwritable(page, (".html", ".htm"))
    run(model, Console(), svg, page, step or ())
