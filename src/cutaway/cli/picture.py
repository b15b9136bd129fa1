"""`cutaway picture KIND MODEL PROMPT -o FILE` and `cutaway view MODEL PROMPT -o FILE`: a prompt as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from cutaway.cli.options import AllowPickle, Attention, Debug, Device, Dtype, Model, RemoteCode, Tokenizer
from cutaway.errors import CutawayError, InputError

Layer = Annotated[
    int | None, typer.Option(metavar="N", help="Which layer; the most telling by default.", show_default=False)
]
HeadNumber = Annotated[
    int | None, typer.Option("--head", metavar="N", help="Which head, likewise.", show_default=False)
]
Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="A text; - reads it from standard input.")]


def picture(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to draw; see above.", show_default=False)],
    model: Model,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="A text; rotary-heatmap needs none.")] = "",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="A .png or .svg file.", show_default="KIND.png"),
    ] = None,
    layer: Layer = None,
    head: HeadNumber = None,
    theme: Annotated[Literal["light", "dark"], typer.Option(metavar="NAME", help="light or dark.")] = "light",
    tokenizer: Tokenizer = None,
    dtype: Dtype = None,
    attn: Attention = None,
    device: Device = None,
    trust_remote_code: RemoteCode = False,
    allow_pickle: AllowPickle = False,
    debug: Debug = False,
) -> None:
    """Draw a still picture of a prompt.

    KIND is attention-head, attention-layer, attention-grid, stream-norms, lens, next-token, rotated-vector,
    rotary-heatmap or relative-position.
    """
    path = output or Path(f"{kind}.png")
    refuse_unwritable(path, (".png", ".svg"))
    from cutaway.cli.options import need_tokenizer, open_model, tokenizer_named, waiting

    with waiting("starting torch and transformers"):
        from cutaway.drawing import draw, kind_of
    kind_of(kind)
    opened = open_model(
        model,
        tokenizer=tokenizer_named(tokenizer, trust_remote_code),
        dtype=dtype,
        attn=attn,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
    )
    if kind_of(kind).needs_prompt:
        need_tokenizer(opened, model)
    drawn = draw(opened, kind, _read(prompt), layer=layer, head=head, theme=theme)
    _saved(drawn.save, path)
    typer.echo(f"wrote {path}: {drawn.title}")


def view(
    model: Model,
    prompt: Prompt,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="An .html file.")] = Path(
        "attention.html"
    ),
    layer: Layer = None,
    head: HeadNumber = None,
    theme: Annotated[Literal["auto", "light", "dark"], typer.Option(metavar="NAME", help="auto, light or dark.")] = (
        "auto"
    ),
    tokenizer: Tokenizer = None,
    dtype: Dtype = None,
    attn: Attention = None,
    device: Device = None,
    trust_remote_code: RemoteCode = False,
    allow_pickle: AllowPickle = False,
    debug: Debug = False,
) -> None:
    """Write a page on which to look at attention. It picks layers and heads, and follows a token's gaze."""
    refuse_unwritable(output, (".html", ".htm"))
    from cutaway.cli.options import need_tokenizer, open_model, tokenizer_named

    opened = open_model(
        model,
        tokenizer=tokenizer_named(tokenizer, trust_remote_code),
        dtype=dtype,
        attn=attn,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
    )
    need_tokenizer(opened, model)
    from cutaway.drawing import attention_page

    page = attention_page(opened, _read(prompt), layer=layer, head=head, theme=theme)
    _saved(page.save, output)
    typer.echo(f"wrote {output}: open it in a browser")
    if page.notice:
        typer.echo(page.notice)


def refuse_unwritable(path: Path, suffixes: tuple[str, ...]) -> None:
    """Raises before any work is done where a file could not be written.

    Raises:
        InputError: the suffix is another one, or there is no such folder.
    """
    if path.suffix.lower() not in suffixes:
        named = path.with_suffix(suffixes[0]) if path.name else Path(f"picture{suffixes[0]}")
        raise InputError(f"this is written as {' or '.join(suffixes[:2])}; name the file {named}, not {path}.")
    if not path.resolve().parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into.")


def _read(prompt: str) -> str:
    return sys.stdin.read() if prompt == "-" else prompt


def _saved(save: object, path: Path) -> None:
    assert callable(save)
    try:
        save(path)
    except OSError as error:
        raise CutawayError(f"{path} cannot be written: {error}.") from error
