"""Activation patching: which layer and position carries what makes one prompt's outcome differ from another's.

A value of the clean prompt's pass is put into the corrupted prompt's pass at one layer and one position, and what the
model then says is measured (Vig et al. 2020, "causal mediation analysis"; Meng et al. 2022, "causal tracing"). A sweep
does so at every layer and position. The positions of a layer are the rows of one batch: the corrupted prompt stands in
it once a position, and row i is patched at its own. Below the patched layer all rows are the corrupted prompt's own
pass, so those blocks are passed over and the rows enter with the stream that was read of it once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cutaway.errors import InputError, ShapeError
from cutaway.model import StandardizedTransformer
from cutaway.subject.inputs import Prompt
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
    own = model.read(corrupted, "input_ids", "layer_input")
    ids = own.pop("input_ids")
    seq = _common_length(given.pop("input_ids"), ids)
    entering = list(own.values())
    groups = torch.arange(seq, device=ids.device).split(rows or seq)
    effects: list[Tensor] = []
    for layer, (path, stored) in enumerate(given.items()):
        patches = ((positions, _Patch(path, stored, axis, positions)) for positions in groups)
        measured = [
            _measured(_logits(model, ids.expand(len(positions), -1), layer, entering[layer], patch), measure)
            for positions, patch in patches
        ]
        effects.append(torch.cat(measured))
    return torch.stack(effects)


class _Patch:
    """Puts a value's positions into the rows of a batch, to each row its own."""

    def __init__(self, path: str, stored: Tensor, axis: int, positions: Tensor) -> None:
        self.path, self.stored, self.axis, self.positions = path, stored, axis, positions

    def __call__(self, value: Tensor) -> None:
        positions = self.positions.to(value.device)
        each = torch.arange(len(positions), device=value.device)
        value.movedim(self.axis, 1)[each, positions] = self.stored.movedim(self.axis, 1)[0, positions]


def _logits(model: StandardizedTransformer, ids: Tensor, layer: int, stream: Tensor, patch: _Patch) -> Tensor:
    """The logits at the last position, `[batch vocab_size]`, of a pass whose rows enter at `layer` with `stream`."""
    forward: dict[str, Any] = {}
    if "logits_to_keep" in inspect.signature(model.hf.forward).parameters:
        forward["logits_to_keep"] = 1
    with model.hooks({patch.path: patch}), model.trace(ids, **forward):
        for below in range(layer - 1):
            model.layers[below].skip()
        if layer:
            model.layers[layer - 1].skip(stream.expand(len(ids), -1, -1).clone())
        return model.logits[:, -1]


def _measured(logits: Tensor, measure: Measure) -> Tensor:
    with torch.no_grad():
        measured = measure(logits)
    if measured.shape != logits.shape[:1]:
        raise ShapeError(
            f"`measure` gives a number a row, [{len(logits)}] here; it gave {list(measured.shape)}. "
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
