"""The options that several commands share, and opening the model that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cutaway.errors import InputError, LoadError

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

DtypeName = Literal["float64", "float32", "bfloat16", "float16"]

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A hub id, a local folder, or phi-mini.", show_default=False)
]
Dtype = Annotated[
    DtypeName | None, typer.Option(metavar="NAME", help="float64, float32, bfloat16 or float16.", show_default=False)
]
Attention = Annotated[
    str | None, typer.Option("--attn", metavar="NAME", help="sdpa, eager, flex_attention, ...", show_default=False)
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, mps, ...", show_default=False)]
RemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that the checkpoint brings.")]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Load weights in pickle format, which can run code.")]


Tokenizer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Whose tokenizer to use, where MODEL has none: as MODEL is named.", show_default=False
    ),
]


def _remember(ctx: typer.Context, wanted: bool) -> bool:
    ctx.find_root().meta[_DEBUG] = wanted
    return wanted


def wants_traceback(ctx: Any) -> bool:
    """Whether `--debug` was given."""
    return bool(ctx.find_root().meta.get(_DEBUG))


_DEBUG = "cutaway.debug"

Debug = Annotated[bool, typer.Option("--debug", callback=_remember, help="Show where in the code an error came from.")]


def open_model(
    name: str,
    *,
    dtype: DtypeName | None,
    attn: str | None,
    device: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    **more: Any,
) -> StandardizedTransformer:
    """Opens a model as the options say; `more` goes to `StandardizedTransformer` as it is."""
    with waiting("starting torch and transformers"):
        import torch

        from cutaway.model import StandardizedTransformer
    return StandardizedTransformer(
        name,
        dtype=getattr(torch, dtype) if dtype else None,
        attn_implementation=attn,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        **more,
    )


def tokenizer_named(name: str | None, trust_remote_code: bool = False) -> Any:
    """The tokenizer that `--tokenizer` names, or None where it was not given.

    Raises:
        LoadError: it cannot be had.
    """
    if name is None:
        return None
    with waiting("starting torch and transformers"):
        from cutaway.model import StandardizedTransformer
    tokenizer = StandardizedTransformer(name, dispatch=False, trust_remote_code=trust_remote_code).tokenizer
    if tokenizer is None:
        raise LoadError(f"{name} has no tokenizer either, or it cannot be had; name another with --tokenizer.")
    return tokenizer


def need_tokenizer(model: StandardizedTransformer, name: str) -> None:
    """Raises where a text cannot be run.

    Raises:
        InputError: the model has no tokenizer.
    """
    if model.tokenizer is None:
        raise InputError(f"{name} has no tokenizer, so a text cannot be run. Say whose to use: --tokenizer NAME.")


def waiting(what: str) -> Any:
    """A sign on stderr, where that is a terminal, that something takes a moment."""
    from rich.console import Console

    return Console(stderr=True).status(f"[dim]{what}[/dim]", spinner="dots")
