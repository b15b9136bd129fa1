"""The gradients of one logit by all layers' outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.workload import Workload

TOKEN = 7


def raw(case: Case) -> tuple[Tensor, ...]:
    found: list[Tensor] = []
    handles = [
        layer.register_forward_hook(lambda _module, _args, output: found.append(output))
        for layer in case.hf.model.layers
    ]
    try:
        logits = case.hf(**case.inputs).logits
    finally:
        for handle in handles:
            handle.remove()
    return torch.autograd.grad(logits[0, -1, TOKEN], found)


def cutaway(case: Case) -> tuple[Tensor, ...]:
    model = case.cutaway
    with model.trace(case.inputs, grad=True):
        found = [layer.layer_output for layer in model.layers]
        return torch.autograd.grad(model.logits[0, -1, TOKEN], found)


def nnsight(case: Case) -> tuple[Tensor, ...]:
    model = case.nnsight
    with model.trace(**case.inputs):
        found = list()
        for layer in model.model.layers:
            found.append(layer.output)
        gradients = list(torch.autograd.grad(model.output.logits[0, -1, TOKEN], found)).save()
    return gradients


def lens(case: Case) -> tuple[Tensor, ...]:
    found: list[Tensor] = []

    def keep(value: Tensor, hook: Any) -> None:
        found.append(value)

    hooks = [(f"blocks.{layer}.hook_out", keep) for layer in range(case.num_layers)]
    logits = case.lens.run_with_hooks(case.ids, fwd_hooks=hooks)
    return torch.autograd.grad(logits[0, -1, TOKEN], found)


WORKLOAD = Workload("9", "gradients of all layers' outputs", {RAW: raw, CUTAWAY: cutaway, NNSIGHT: nnsight, LENS: lens})
