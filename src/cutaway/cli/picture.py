"""`cutaway picture KIND MODEL PROMPT -o FILE` and `cutaway view MODEL PROMPT -o FILE`: a prompt as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cutaway.cli.options import Force, Loading, Model, Prompt, opens_a_model
from cutaway.cli.output import STANDARD_OUTPUT

Layer = Annotated[
    int | None, typer.Option(metavar="N", help="Which layer; the most telling by default.", show_default=False)
]
HeadNumber = Annotated[
    int | None, typer.Option("--head", metavar="N", help="Which head, likewise.", show_default=False)
]


@opens_a_model
def picture(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to draw; see above.", show_default=False)],
    model: Model,
    loading: Loading,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="A text; - reads it from standard input; rotary-heatmap needs none.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="A .png or .svg file; - writes a PNG to standard output.",
            show_default="KIND.png",
        ),
    ] = None,
    force: Force = False,
    layer: Layer = None,
    head: HeadNumber = None,
    theme: Annotated[Literal["light", "dark"], typer.Option(metavar="NAME", help="light or dark.")] = "light",
) -> None:
    """Draw a still picture of a prompt.

    KIND is attention-head, attention-layer, attention-grid, stream-norms, lens, next-token, rotated-vector,
    rotary-heatmap or relative-position.
    """
    from cutaway.cli.opening import need_tokenizer, open_model
    from cutaway.cli.output import refuse_unwritable, save
    from cutaway.cli.prompts import read_prompt
    from cutaway.cli.terminal import waiting

    path = output or Path(f"{kind}.png")
    if output is not None:
        refuse_unwritable(path, (".png", ".svg"), force=force)
    with waiting("starting torch and transformers"):
        from cutaway.drawing import draw, kind_of
    needs_prompt = kind_of(kind).needs_prompt
    refuse_unwritable(path, (".png", ".svg"), force=force)
    text = read_prompt(prompt)
    opened = open_model(model, loading)
    if needs_prompt:
        need_tokenizer(opened, model)
    drawn = draw(opened, kind, text, layer=layer, head=head, theme=theme)
    content = drawn.to_svg().encode() if path.suffix.lower() == ".svg" else drawn.to_png()
    save(path, content, f"wrote {path}: {drawn.title}", force=force)


@opens_a_model
def view(
    model: Model,
    prompt: Prompt,
    loading: Loading,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="An .html file; - is standard output.")
    ] = Path("attention.html"),
    force: Force = False,
    layer: Layer = None,
    head: HeadNumber = None,
    theme: Annotated[Literal["auto", "light", "dark"], typer.Option(metavar="NAME", help="auto, light or dark.")] = (
        "auto"
    ),
) -> None:
    """Write a page on which to look at attention. It picks layers and heads, and follows a token's gaze."""
    from cutaway.cli.opening import need_tokenizer, open_model
    from cutaway.cli.output import refuse_unwritable, save
    from cutaway.cli.prompts import read_prompt
    from cutaway.cli.terminal import say

    refuse_unwritable(output, (".html", ".htm"), force=force)
    text = read_prompt(prompt)
    opened = open_model(model, loading)
    need_tokenizer(opened, model)
    from cutaway.drawing import attention_page

    page = attention_page(opened, text, layer=layer, head=head, theme=theme)
    save(output, page.html.encode(), f"wrote {output}: open it in a browser", force=force)
    if page.notice and output != STANDARD_OUTPUT:
        say(page.notice)
