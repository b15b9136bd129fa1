"""Zero the middle layer's MLP and read the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.workload import Workload


def raw(case: Case) -> Tensor:
    mlp = case.hf.model.layers[case.num_layers // 2].mlp
    handle = mlp.register_forward_hook(lambda _module, _args, output: torch.zeros_like(output))
    try:
        with torch.no_grad():
            return case.hf(**case.inputs).logits
    finally:
        handle.remove()


def cutaway(case: Case) -> Tensor:
    model = case.cutaway
    with model.trace(case.inputs):
        model.layers[case.num_layers // 2].mlp.mlp_output[:] = 0
        return model.logits


def nnsight(case: Case) -> Tensor:
    model, layer = case.nnsight, case.num_layers // 2
    with torch.no_grad(), model.trace(**case.inputs):
        model.model.layers[layer].mlp.output[:] = 0
        logits = model.output.logits.save()
    return logits


def lens(case: Case) -> Tensor:
    name = f"blocks.{case.num_layers // 2}.hook_mlp_out"
    with torch.no_grad():
        return case.lens.run_with_hooks(case.ids, fwd_hooks=[(name, lambda value, hook: torch.zeros_like(value))])


WORKLOAD = Workload(
    "6",
    "zero one MLP and read the logits",
    {RAW: raw, CUTAWAY: cutaway, NNSIGHT: nnsight, LENS: lens},
    large=True,
)
