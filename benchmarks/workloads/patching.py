"""A patching sweep: at each layer and position, the clean prompt's stream is put into the corrupted prompt's pass.

What is measured is one logit at the last position. The raw way and Cutaway run all positions of a layer as one batch;
the peers loop over positions, as their own helpers do, and `batched` is their batch written by hand. Batched products
are summed in another order, so that results agree within a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.all_layers import lens as lens_streams
from benchmarks.workloads.all_layers import nnsight as nnsight_streams
from benchmarks.workloads.all_layers import raw as raw_streams
from benchmarks.workloads.workload import Workload
from cutaway.analysis import patching_sweep

TOKENS = 30
TOKEN = 7


def _corrupted(case: Case) -> Tensor:
    """The clean prompt, with a third of its tokens exchanged, the first among them."""
    ids = case.ids.clone()
    ids[:, ::3] = ids[:, ::3] + 1
    return ids


def _rows(case: Case) -> dict[str, Tensor]:
    """The corrupted prompt, a row a position."""
    ids = _corrupted(case).expand(case.ids.shape[1], -1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _places(case: Case) -> Iterator[tuple[int, int]]:
    return ((layer, position) for layer in range(case.num_layers) for position in range(case.ids.shape[1]))


def raw(case: Case) -> Tensor:
    streams, inputs = raw_streams(case), _rows(case)
    each = torch.arange(case.ids.shape[1])
    effects = []
    for layer, stream in zip(case.hf.model.layers, streams[:-1], strict=True):

        def patch(_module: Any, _args: Any, output: Tensor, stream: Tensor = stream) -> None:
            output[each, each] = stream[0]

        handle = layer.register_forward_hook(patch)
        try:
            with torch.no_grad():
                effects.append(case.hf(**inputs).logits[:, -1, TOKEN])
        finally:
            handle.remove()
    return torch.stack(effects)


def cutaway(case: Case) -> Tensor:
    clean, corrupted = case.ids[0], _corrupted(case)[0]
    return patching_sweep(case.cutaway, clean, corrupted, lambda logits: logits[:, TOKEN])


def nnsight(case: Case) -> Tensor:
    model, streams = case.nnsight, nnsight_streams(case)
    ids = _corrupted(case)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    effects = []
    for layer, position in _places(case):
        with torch.no_grad(), model.trace(**inputs):
            model.model.layers[layer].output[:, position] = streams[layer][:, position]
            effect = model.output.logits[0, -1, TOKEN].save()
        effects.append(effect)
    return torch.stack(effects).view(case.num_layers, -1)


def nnsight_batched(case: Case) -> Tensor:
    model, streams, inputs = case.nnsight, nnsight_streams(case), _rows(case)
    each = torch.arange(case.ids.shape[1])
    effects = []
    for layer in range(case.num_layers):
        with torch.no_grad(), model.trace(**inputs):
            model.model.layers[layer].output[each, each] = streams[layer][0]
            effect = model.output.logits[:, -1, TOKEN].save()
        effects.append(effect)
    return torch.stack(effects)


def lens(case: Case) -> Tensor:
    streams, ids = lens_streams(case), _corrupted(case)
    effects = []
    for layer, position in _places(case):

        def patch(value: Tensor, hook: Any, layer: int = layer, position: int = position) -> Tensor:
            value[:, position] = streams[layer][:, position]
            return value

        with torch.no_grad():
            logits = case.lens.run_with_hooks(ids, fwd_hooks=[(f"blocks.{layer}.hook_out", patch)])
        effects.append(logits[0, -1, TOKEN])
    return torch.stack(effects).view(case.num_layers, -1)


def lens_batched(case: Case) -> Tensor:
    streams, ids = lens_streams(case), _rows(case)["input_ids"]
    each = torch.arange(case.ids.shape[1])
    effects = []
    for layer in range(case.num_layers):

        def patch(value: Tensor, hook: Any, layer: int = layer) -> Tensor:
            value[each, each] = streams[layer][0]
            return value

        with torch.no_grad():
            logits = case.lens.run_with_hooks(ids, fwd_hooks=[(f"blocks.{layer}.hook_out", patch)])
        effects.append(logits[:, -1, TOKEN])
    return torch.stack(effects)


WORKLOAD = Workload(
    "7",
    f"patching sweep, layers × {TOKENS} positions",
    {
        RAW: raw,
        CUTAWAY: cutaway,
        NNSIGHT: nnsight,
        f"{NNSIGHT}, batched": nnsight_batched,
        LENS: lens,
        f"{LENS}, batched": lens_batched,
    },
    exact=False,
    small=frozenset({f"{NNSIGHT}, batched", f"{LENS}, batched"}),
    tokens=TOKENS,
)
