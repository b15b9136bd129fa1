"""`cutaway read MODEL PROMPT NAME...`: values of one pass, as a table or as a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.options import AllowPickle, Attention, Debug, Device, Dtype, Model, RemoteCode, Tokenizer
from cutaway.errors import CutawayError, InputError

if TYPE_CHECKING:
    from torch import Tensor


def read(
    model: Model,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="A text; - reads it from standard input.", show_default=False)
    ],
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Values, by name, path or pattern: 'layers.*.mlp_output'.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write them to a .safetensors file instead.", show_default=False
        ),
    ] = None,
    tokenizer: Tokenizer = None,
    dtype: Dtype = None,
    attn: Attention = None,
    device: Device = None,
    trust_remote_code: RemoteCode = False,
    allow_pickle: AllowPickle = False,
    debug: Debug = False,
) -> None:
    """Read values of one forward pass. Prints a table of their shapes and a few figures, or writes a file."""
    if output is not None:
        refuse_unwritable(output)
    if prompt == "-":
        prompt = sys.stdin.read()
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
    values = opened.read(prompt, *names)
    if output is not None:
        write_safetensors(values, output, {"model": model, "prompt": prompt})
        typer.echo(f"wrote {len(values)} values to {output}")
        return
    from rich.console import Console

    from cutaway.cli.read_table import ReadTable

    Console().print(ReadTable(values))


def refuse_unwritable(path: Path) -> None:
    """Raises before any work is done where a file could not be written.

    Raises:
        InputError: the suffix is another one, or there is no such folder.
    """
    if path.suffix != ".safetensors":
        raise InputError(
            f"values are written as safetensors; name the file {path.with_suffix('.safetensors')}, not {path}."
        )
    if not path.resolve().parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into.")


def write_safetensors(values: dict[str, Any], path: Path, metadata: dict[str, str]) -> None:
    """Writes values by path, each a tensor of its own. The file appears under its name when it is complete.

    Raises:
        CutawayError: it cannot be written; nothing is left of it.
    """
    import os

    import torch
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {
        name: value.detach().cpu().contiguous().clone() if isinstance(value, torch.Tensor) else torch.tensor(value)
        for name, value in values.items()
    }
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors, unfinished, metadata)
        os.replace(unfinished, path)
    except OSError as error:
        raise CutawayError(f"{path} cannot be written: {error}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
