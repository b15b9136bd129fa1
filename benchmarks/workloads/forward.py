"""One forward, nothing asked: what it costs that a library has opened the model."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.workload import Workload


def raw(case: Case) -> Tensor:
    with torch.no_grad():
        return case.hf(**case.inputs).logits


def cutaway(case: Case) -> Tensor:
    with torch.no_grad():
        return case.cutaway.hf(**case.inputs).logits


def cutaway_trace(case: Case) -> Tensor:
    with case.cutaway.trace(case.inputs):
        return case.cutaway.logits


def nnsight(case: Case) -> Tensor:
    with torch.no_grad():
        return case.nnsight._module(**case.inputs).logits


def nnsight_trace(case: Case) -> Tensor:
    model = case.nnsight
    with torch.no_grad(), model.trace(**case.inputs):
        logits = model.output.logits.save()
    return logits


def lens(case: Case) -> Tensor:
    with torch.no_grad():
        return case.lens(case.ids)


WORKLOAD = Workload(
    "1",
    "one forward, nothing asked",
    {
        RAW: raw,
        CUTAWAY: cutaway,
        f"{CUTAWAY}, trace": cutaway_trace,
        NNSIGHT: nnsight,
        f"{NNSIGHT}, trace": nnsight_trace,
        LENS: lens,
    },
    large=True,
)
