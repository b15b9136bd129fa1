"""One layer's output, that of the middle layer. Every way leaves the pass there."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.workload import Reached, Workload


def raw_at(case: Case, layer: int) -> Tensor:
    found: list[Tensor] = []

    def stop(_module: Any, _args: Any, output: Tensor) -> None:
        found.append(output)
        raise Reached

    handle = case.hf.model.layers[layer].register_forward_hook(stop)
    try:
        with torch.no_grad(), contextlib.suppress(Reached):
            case.hf(**case.inputs)
    finally:
        handle.remove()
    return found[0]


def cutaway_at(case: Case, layer: int) -> Tensor:
    model = case.cutaway
    with model.trace(case.inputs):
        return model.layers[layer].layer_output


def cutaway_read_at(case: Case, layer: int) -> Tensor:
    path = f"layers.{layer}.layer_output"
    return case.cutaway.read(case.inputs, path)[path]


def nnsight_at(case: Case, layer: int) -> Tensor:
    model = case.nnsight
    with torch.no_grad(), model.trace(**case.inputs) as tracer:
        stream = model.model.layers[layer].output.save()
        tracer.stop()
    return stream


def lens_at(case: Case, layer: int) -> Tensor:
    name = f"blocks.{layer}.hook_out"
    with torch.no_grad():
        _, cache = case.lens.run_with_cache(case.ids, names_filter=name, stop_at_layer=layer + 1)
    return cache[name]


def _middle(case: Case) -> int:
    return case.num_layers // 2


WORKLOAD = Workload(
    "2",
    "one layer's output",
    {
        RAW: lambda case: raw_at(case, _middle(case)),
        CUTAWAY: lambda case: cutaway_at(case, _middle(case)),
        f"{CUTAWAY}, read": lambda case: cutaway_read_at(case, _middle(case)),
        NNSIGHT: lambda case: nnsight_at(case, _middle(case)),
        LENS: lambda case: lens_at(case, _middle(case)),
    },
    large=True,
)
