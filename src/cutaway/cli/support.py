"""`cutaway support MODEL`: which values there are."""

from __future__ import annotations

from typing import Annotated

import typer

from cutaway.cli.options import AllowPickle, Attention, Debug, Dtype, Model, RemoteCode


def support(
    model: Model,
    dtype: Dtype = None,
    attn: Attention = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as data.")] = False,
    trust_remote_code: RemoteCode = False,
    allow_pickle: AllowPickle = False,
    debug: Debug = False,
) -> None:
    """Print which values a model has. Shows where each is read, and why one is missing; loads no weights."""
    from cutaway.cli.options import open_model

    opened = open_model(
        model,
        dtype=dtype,
        attn=attn,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        dispatch=False,
    )
    found = opened.support()
    if as_json:
        import json

        typer.echo(json.dumps(found.to_dict(), indent=2))
        return
    from rich.console import Console

    Console().print(found)
