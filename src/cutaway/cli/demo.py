"""`cutaway demo`: the main things Cutaway does, on the built-in checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.options import Force, Loading, opens_a_model

_PAGE = Path("phi-mini-attention.html")


@opens_a_model
def demo(
    loading: Loading,
    model: Annotated[str, typer.Option(metavar="MODEL", help="A Phi that has a tokenizer.")] = "phi-mini",
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw what is shown to an SVG file, too.", show_default=False)
    ] = None,
    page: Annotated[Path, typer.Option(metavar="FILE", help="Where the attention page is written.")] = _PAGE,
    force: Force = False,
    step: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=1, max=5, help="Show this step alone; may be given again.", show_default=False),
    ] = None,
) -> None:
    """See Cutaway at work. Names, an edit, an identity, an induction head, and what stopping early skips."""
    from cutaway.cli.opening import need_tokenizer, open_model
    from cutaway.cli.output import refuse_unwritable
    from cutaway.cli.terminal import unpadded_console, waiting

    if svg is not None:
        refuse_unwritable(svg, (".svg",), force=force)
    with waiting("starting torch and transformers"):
        from cutaway.demo import is_own_page, run
    if page != _PAGE and not step:  # of the usual one the demo says what became of it
        refuse_unwritable(page, (".html", ".htm"), force=force or is_own_page(page))
    opened = open_model(model, loading)
    need_tokenizer(opened, model)
    run(opened, model, unpadded_console(), svg, page, step or (), replace=force)
