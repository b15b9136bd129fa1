"""`cutaway show MODEL`: the printout."""

from __future__ import annotations

from cutaway.cli.options import AllowPickle, Attention, Debug, Dtype, Model, RemoteCode


def show(
    model: Model,
    dtype: Dtype = None,
    attn: Attention = None,
    trust_remote_code: RemoteCode = False,
    allow_pickle: AllowPickle = False,
    debug: Debug = False,
) -> None:
    """Print a model under its standard names. Shows every module, and every value under its host; loads no weights."""
    from cutaway.cli.options import open_model

    opened = open_model(
        model,
        dtype=dtype,
        attn=attn,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        dispatch=False,
    )
    from rich.console import Console

    Console().print(opened)
