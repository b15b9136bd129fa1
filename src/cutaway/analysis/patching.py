"""Activation patching: which layer and position carries what makes one prompt's outcome differ from another's.

A value of the clean prompt's pass is put into the corrupted prompt's pass at one layer and one position, and what the
model then says is measured (Vig et al. 2020, "causal mediation analysis"; Meng et al. 2022, "causal tracing"). A sweep
does so at every layer and position. Positions that lie together are the rows of one batch, each patched at its own, and
what no patch of theirs can change is not computed again: see `unedited`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cutaway.analysis.unedited import Unedited
from cutaway.errors import InputError, ShapeError
from cutaway.model import StandardizedTransformer
from cutaway.subject.inputs import Prompt
from cutaway.vocabulary import ValuePath
from cutaway.vocabulary.values import VALUES

Measure = Callable[[Tensor], Tensor]
"""Given the logits at the last position, `[batch vocab_size]`; returns a number a row, `[batch]`."""

_GROUPS = 5
"""Into how many batches the positions of a layer fall: with more, less is run twice, in smaller products."""


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
        rows: how many positions to run at once; by default a fifth of them. Memory grows with it.

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
    _refuse_several("clean", given["input_ids"])
    own = Unedited(model, corrupted, "the corrupted prompt")
    seq = _common_length(given.pop("input_ids"), own.ids)
    groups = torch.arange(seq, device=own.ids.device).split(rows or -(-seq // (1 if own.why_whole else _GROUPS)))
    effects: list[Tensor] = []
    for layer, stored in enumerate(given.values()):
        patches = ((positions, _Patch(stored, axis, positions, seq)) for positions in groups)
        measured = [
            _measured(_logits(model, own, ValuePath(value, layer), patch, len(positions)), measure)
            for positions, patch in patches
        ]
        effects.append(torch.cat(measured))
    return torch.stack(effects)


class _Patch:
    """Puts a value's positions into the rows of a batch, to each row its own."""

    def __init__(self, stored: Tensor, axis: int, positions: Tensor, seq: int) -> None:
        self.stored, self.axis, self.positions, self._seq = stored, axis, positions, seq

    def __call__(self, value: Tensor) -> Tensor:
        """A copy of the value of a pass, which may begin further on than its row, with the positions put in."""
        positions, new = self.positions.to(value.device), value.clone()
        first = self._seq - value.shape[self.axis]
        each = torch.arange(len(positions), device=value.device)
        new.movedim(self.axis, 1)[each, positions - first] = self.stored.movedim(self.axis, 1)[0, positions]
        return new


def _logits(model: StandardizedTransformer, own: Unedited, path: ValuePath, patch: _Patch, rows: int) -> Tensor:
    """The logits at the last position, `[batch vocab_size]`, of rows that are patched at a layer."""
    assert path.layer is not None
    start = int(patch.positions[0])
    entering = {"layer_input": path.layer, "layer_output": path.layer + 1}.get(path.name)
    if entering is not None and (entering == path.layer or own.goes_on[path.layer]):
        with own.entered(entering, start, rows, patch(own.stream(entering, start, rows))):
            return model.logits[:, -1]
    with own.entered(path.layer, start, rows) as run:
        address = model._subject.address(path)
        run.edit(address, patch(run.ask(address)))
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
    if clean.shape != corrupted.shape:
        raise ShapeError(
            f"the clean prompt has {clean.shape[1]} tokens and the corrupted one {corrupted.shape[1]}. Positions are "
            "patched one by one, so both must be equally long."
        )
    return clean.shape[1]


def _refuse_several(name: str, ids: Tensor) -> None:
    if len(ids) != 1:
        raise InputError(f"the {name} prompt has {len(ids)} rows; a sweep takes one prompt of each kind.")
