"""`cutaway check MODEL`: does it keep what the vocabulary promises?"""

from __future__ import annotations

from typing import Annotated

import typer

from cutaway.cli.options import AllowPickle, Attention, Debug, Device, Dtype, Model, RemoteCode


def check(
    model: Model,
    dtype: Dtype = None,
    attn: Attention = None,
    device: Device = None,
    shapes_only: Annotated[
        bool, typer.Option("--shapes-only", help="Load no weights, and check shapes alone.")
    ] = False,
    trust_remote_code: RemoteCode = False,
    allow_pickle: AllowPickle = False,
    debug: Debug = False,
) -> None:
    """Check that a model keeps the vocabulary's promises. Ends with status 1 where it does not."""
    from cutaway.cli.options import open_model, waiting

    opened = open_model(
        model,
        dtype=dtype,
        attn=attn,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        dispatch=not shapes_only,
        check=False,
    )
    with waiting(f"checking {model}"):
        report = opened.check()
    typer.echo(str(report))
