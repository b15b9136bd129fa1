"""All layers' outputs and the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.workload import Workload


def raw(case: Case) -> list[Tensor]:
    found: list[Tensor] = []
    handles = [
        layer.register_forward_hook(lambda _module, _args, output: found.append(output))
        for layer in case.hf.model.layers
    ]
    try:
        with torch.no_grad():
            found.append(case.hf(**case.inputs).logits)
    finally:
        for handle in handles:
            handle.remove()
    return found


def cutaway(case: Case) -> list[Tensor]:
    model = case.cutaway
    with model.trace(case.inputs):
        found = [layer.layer_output for layer in model.layers]
        found.append(model.logits)
    return found


def cutaway_read(case: Case) -> list[Tensor]:
    return list(case.cutaway.read(case.inputs, "layers.*.layer_output", "logits").values())


def nnsight(case: Case) -> list[Tensor]:
    model = case.nnsight
    with torch.no_grad(), model.trace(**case.inputs):
        found = list().save()
        for layer in model.model.layers:
            found.append(layer.output)
        found.append(model.output.logits)
    return found


def lens(case: Case) -> list[Tensor]:
    names = [f"blocks.{layer}.hook_out" for layer in range(case.num_layers)]
    with torch.no_grad():
        logits, cache = case.lens.run_with_cache(case.ids, names_filter=names)
    return [*(cache[name] for name in names), logits]


WORKLOAD = Workload(
    "3",
    "all layers' outputs and the logits",
    {RAW: raw, CUTAWAY: cutaway, f"{CUTAWAY}, read": cutaway_read, NNSIGHT: nnsight, LENS: lens},
    large=True,
)
