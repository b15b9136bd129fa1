"""Activation patching: which layer and position carries what makes one prompt's outcome differ from another's.

A value of the clean prompt's pass is put into the corrupted prompt's pass at one layer and one position, and what the
model then says is measured (Vig et al. 2020, "causal mediation analysis"; Meng et al. 2022, "causal tracing"). A sweep
does so at every layer and position. The positions of a layer are the rows of one batch: the corrupted prompt stands in
it once a position, and row i is patched at its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cutaway.errors import InputError, ShapeError
from cutaway.model import StandardizedTransformer
from cutaway.model.inputs import Prompt
from cutaway.vocabulary.values import VALUES

Measure = Callable[[Tensor], Tensor]
"""Given the logits at the last position, `[batch vocab_size]`; returns a number a row, `[batch]`."""


def patching_sweep(
    model: StandardizedTransformer,
    clean: Prompt,
    corrupted: Prompt,
    measure: Measure,
    *,
    value: str = "layer_output",
    rows: int | None = None,
) -> Tensor:
    """What `measure` gives for the corrupted prompt, with the clean prompt's value put in at each layer and position.

    >>> effects = patching_sweep(model, clean, corrupted, lambda logits: logits[:, right] - logits[:, wrong])

    Args:
        model: the model.
        clean: the prompt whose value is put in; one row.
        corrupted: the prompt whose pass it is put into; one row of as many tokens.
        measure: given the logits at the last position, `[batch vocab_size]`, gives `[batch]`.
        value: the bare name of a value that every layer has, with an axis of positions.
        rows: how many positions to run at once; by default all of them. Memory grows with it.

    Returns:
        `[num_layers seq]`, in what `measure` measures.

    Raises:
        InputError: a prompt has several rows, the value is not one of a layer and a position, or `rows` is below one.
        ShapeError: the prompts differ in length, or `measure` gives something other than a number a row.
    """
    axis = _position_axis(value)
    if rows is not None and rows < 1:
        raise InputError(f"at least one row is run at once; `rows` was given as {rows}.")
    given = model.read(clean, "input_ids", value)
    ids = model.read(corrupted, "input_ids")["input_ids"]
    seq = _common_length(given.pop("input_ids"), ids)
    effects = torch.stack(
        [
            torch.cat(
                [
                    _patched(model, ids, path, stored, axis, positions, measure)
                    for positions in torch.arange(seq, device=ids.device).split(rows or seq)
                ]
            )
            for path, stored in given.items()
        ]
    )
    return effects


def _patched(
    model: StandardizedTransformer,
    ids: Tensor,
    path: str,
    stored: Tensor,
    axis: int,
    positions: Tensor,
    measure: Measure,
) -> Tensor:
    """The measure of each row of a batch, patched at its own position; `[positions]`."""

    def patch(value: Tensor) -> None:
        here = positions.to(value.device)
        each = torch.arange(len(here), device=value.device)
        value.movedim(axis, 1)[each, here] = stored.movedim(axis, 1)[0, here]

    batch = ids.expand(len(positions), -1)
    with model.hooks({path: patch}):
        logits = model.read(batch, "logits")["logits"]
    with torch.no_grad():
        measured = measure(logits[:, -1])
    if measured.shape != (len(positions),):
        raise ShapeError(
            f"`measure` gives a number a row, [{len(positions)}] here; it gave {list(measured.shape)}. "
            "It is given the logits at the last position, [batch vocab_size]."
        )
    return measured


def _position_axis(name: str) -> int:
    value = VALUES.get(name)
    if value is None or value.host == "model" or "seq" not in value.layout.axes:
        raise InputError(
            f"`{name}` is not a layer's value with an axis of positions. Sweep over `layer_output`, `mlp_output`, "
            "`attention_output` or another whose layout has `seq`."
        )
    return value.layout.axes.index("seq")


def _common_length(clean: Tensor, corrupted: Tensor) -> int:
    for name, ids in (("clean", clean), ("corrupted", corrupted)):
        if len(ids) != 1:
            raise InputError(f"the {name} prompt has {len(ids)} rows; a sweep takes one prompt of each kind.")
    if clean.shape != corrupted.shape:
        raise ShapeError(
            f"the clean prompt has {clean.shape[1]} tokens and the corrupted one {corrupted.shape[1]}. Positions are "
            "patched one by one, so both must be equally long."
        )
    return clean.shape[1]
