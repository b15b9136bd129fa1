"""All attention patterns, under eager attention, which alone computes them by itself."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.workload import Reached, Workload


def raw(case: Case) -> list[Tensor]:
    found: list[Tensor] = []

    def keep(_module: Any, _args: Any, output: tuple[Tensor, Tensor]) -> None:
        found.append(output[1])
        if len(found) == case.num_layers:
            raise Reached

    handles = [layer.self_attn.register_forward_hook(keep) for layer in case.hf.model.layers]
    try:
        with torch.no_grad(), contextlib.suppress(Reached):
            case.hf(**case.inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def cutaway(case: Case) -> list[Tensor]:
    model = case.cutaway
    with model.trace(case.inputs):
        return [layer.self_attn.attention_probabilities for layer in model.layers]


def cutaway_read(case: Case) -> list[Tensor]:
    return list(case.cutaway.read(case.inputs, "layers.*.self_attn.attention_probabilities").values())


def nnsight(case: Case) -> list[Tensor]:
    model = case.nnsight
    with torch.no_grad(), model.trace(**case.inputs) as tracer:
        found = list().save()
        for layer in model.model.layers:
            found.append(layer.self_attn.output[1])
        tracer.stop()
    return found


def lens(case: Case) -> list[Tensor]:
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(case.num_layers)]
    with torch.no_grad():
        _, cache = case.lens.run_with_cache(case.ids, names_filter=names)
    return [cache[name] for name in names]


WORKLOAD = Workload(
    "5",
    "all attention patterns",
    {RAW: raw, CUTAWAY: cutaway, f"{CUTAWAY}, read": cutaway_read, NNSIGHT: nnsight, LENS: lens},
    eager=True,
)
