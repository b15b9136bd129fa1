"""Twenty tokens, greedily, with the middle layer's output read at each step; transformers' key and value cache in use.

TransformerLens is run without its cache. With it, under this version of transformers, its Phi bridge drops the cache
and generates other tokens: the results would not be the same work.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.workload import Workload

NEW = 20


def raw(case: Case) -> list[Tensor]:
    found: list[Tensor] = []
    layer = case.hf.model.layers[case.num_layers // 2]
    handle = layer.register_forward_hook(lambda _module, _args, output: found.append(output))
    try:
        with torch.no_grad():
            ids = case.hf.generate(**case.inputs, max_new_tokens=NEW, do_sample=False)
    finally:
        handle.remove()
    return [ids, *found]


def cutaway(case: Case) -> list[Tensor]:
    model, layer = case.cutaway, case.num_layers // 2
    found: list[Tensor] = []
    with model.generate(case.inputs, max_new_tokens=NEW, do_sample=False) as run:
        for _ in run:
            found.append(model.layers[layer].layer_output)
    return [run.sequences, *found]


def nnsight(case: Case) -> list[Tensor]:
    model, layer = case.nnsight, case.num_layers // 2
    with torch.no_grad(), model.generate(case.inputs, max_new_tokens=NEW, do_sample=False) as tracer:
        found = list().save()
        for _ in tracer.iter[:NEW]:
            found.append(model.model.layers[layer].output)
        ids = tracer.result.save()
    return [ids, *found]


def lens(case: Case) -> list[Tensor]:
    found: list[Tensor] = []

    def keep(value: Tensor, hook: Any) -> None:
        found.append(value if not found else value[:, -1:])

    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        case.lens.hooks(fwd_hooks=[(f"blocks.{case.num_layers // 2}.hook_out", keep)]),
    ):
        warnings.simplefilter("ignore")
        ids = case.lens.generate(
            case.ids,
            max_new_tokens=NEW,
            do_sample=False,
            stop_at_eos=False,
            use_past_kv_cache=False,
            return_type="tokens",
            verbose=False,
        )
    return [ids, *found]


WORKLOAD = Workload(
    "8", "20 tokens generated, one value read a step", {RAW: raw, CUTAWAY: cutaway, NNSIGHT: nnsight, LENS: lens}
)
