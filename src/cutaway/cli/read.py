"""`cutaway read MODEL PROMPT NAME...`: values of one pass, as a table, as data or as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.options import Force, Json, Loading, Model, Prompt, opens_a_model
from cutaway.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@opens_a_model
def read(
    model: Model,
    prompt: Prompt,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Values, by name, path or pattern: 'layers.*.mlp_output'.", show_default=False
        ),
    ],
    loading: Loading,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write them to a .safetensors file instead; - is standard output.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Read values of one forward pass. Prints a table of their shapes and a few figures, or writes a file."""
    from cutaway.cli.opening import need_tokenizer, open_model
    from cutaway.cli.output import refuse_unwritable, save
    from cutaway.cli.prompts import read_prompt
    from cutaway.cli.terminal import Table, put

    if output is not None:
        if as_json:
            raise InputError("--json prints figures and -o writes a file. Give one of them.")
        refuse_unwritable(output, (".safetensors",), force=force)
    prompt = read_prompt(prompt)
    opened = open_model(model, loading)
    need_tokenizer(opened, model)
    values = opened.read(prompt, *names)
    if output is not None:
        content = as_safetensors(values, {"model": model, "prompt": prompt})
        save(output, content, f"wrote {len(values)} values to {output}", force=force)
        return
    from cutaway.cli.read_table import ReadTable, rows_of, told_of_masked

    rows = rows_of(values)
    header = ("path", "layout", "shape", "dtype", "mean", "std", "min", "max")
    put(
        as_json,
        lambda: {"model": model, "prompt": prompt, "values": [row.to_dict() for row in rows]},
        lambda: ReadTable(rows),
        lambda: Table(header, [(row.path, *row.cells()) for row in rows], told_of_masked(rows)),
    )


def as_safetensors(values: dict[str, Any], metadata: dict[str, str]) -> bytes:
    """A safetensors file of values by path, each a tensor of its own.

    Raises:
        InputError: one is neither a tensor nor numbers.
    """
    import torch
    from safetensors.torch import save

    from cutaway.cli.read_table import flattened

    tensors: dict[str, Tensor] = {}
    for name, value in flattened(values).items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value.detach().cpu().contiguous().clone()
        elif isinstance(value, (bool, int, float, list, tuple)):
            tensors[name] = torch.tensor(value)
        elif value is not None:
            raise InputError(f"{name} is a {type(value).__name__}, which a safetensors file has no place for.")
    return save(tensors, metadata)
