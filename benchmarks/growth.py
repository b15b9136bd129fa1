"""How cost grows: with layers, tokens, values asked and batch, and with the depth of the layer that is read.

The model is 12 layers of width 256 with random weights, but for the curve over layers. All layers' outputs and the
logits are read, but for the curves over values and depth. Each point is measured as a workload is: in turns.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case, small_case
from benchmarks.timing import Clock, interleave, spread
from benchmarks.workloads import all_layers, forward, one_layer

Curve = dict[str, Any]
Way = Callable[[Case], Any]

LAYERS = (2, 6, 12, 24)
TOKENS = (16, 64, 128, 256)
BATCH = (1, 2, 4, 8)
VALUES = (1, 4, 12, 24, 36)
DEPTH = 12
STREAM_PARTS = ("attention_output", "mlp_output", "layer_output")


def curves(libraries: list[str], rounds: int, depth: int = DEPTH, clock: Clock = time.perf_counter) -> list[Curve]:
    """The five curves; each point is the median in milliseconds of every library."""
    case = small_case(depth)
    streams = {name: way for name, way in all_layers.WORKLOAD.ways.items() if name in libraries}
    layers = [(count, partial(_on, small_case(count), streams)) for count in LAYERS if count <= 2 * depth]
    tokens = [(count, partial(_on, case.resized(count, 1), streams)) for count in TOKENS]
    batch = [(count, partial(_on, case.resized(32, count), streams)) for count in BATCH]
    values = [(count, partial(_asking, case, libraries, count)) for count in VALUES if count <= 3 * depth]
    depths = [(layer + 1, partial(_reading, case, libraries, layer)) for layer in range(0, depth, max(1, depth // 6))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            _curve("layers", "layers of the model", layers, rounds, clock),
            _curve("tokens", "tokens of the prompt", tokens, rounds, clock),
            _curve("batch", "rows of the batch, 32 tokens each", batch, rounds, clock),
            _curve("values", "values asked, and the logits", values, rounds, clock),
            _curve("depth", f"the layer that is read, of {depth}", depths, rounds, clock),
        ]


def _curve(
    name: str, axis: str, points: Sequence[tuple[int, Callable[[], dict[str, Any]]]], rounds: int, clock: Clock
) -> Curve:
    lines: dict[str, list[dict[str, Any]]] = {}
    for place, make in points:
        for way, seconds in interleave(make(), rounds, warmup=1, clock=clock).items():
            low, high = spread(seconds)
            point = {
                "at": place,
                "median_ms": 1e3 * statistics.median(seconds),
                "quartiles_ms": [1e3 * low, 1e3 * high],
            }
            lines.setdefault(way, []).append(point)
    return {"name": name, "axis": axis, "lines": lines}


def _on(case: Case, ways: dict[str, Way]) -> dict[str, Callable[[], Any]]:
    return {name: partial(way, case) for name, way in ways.items()}


def _reading(case: Case, libraries: list[str], layer: int) -> dict[str, Callable[[], Any]]:
    ways = {
        RAW: one_layer.raw_at,
        CUTAWAY: one_layer.cutaway_at,
        NNSIGHT: one_layer.nnsight_at,
        LENS: one_layer.lens_at,
    }
    reading = {name: partial(way, case, layer) for name, way in ways.items() if name in libraries}
    return {"whole forward": partial(forward.raw, case), **reading}


def _asking(case: Case, libraries: list[str], count: int) -> dict[str, Callable[[], Any]]:
    every = [(layer, part) for layer in range(case.num_layers) for part in STREAM_PARTS]
    wanted = [every[round((i + 1) * len(every) / count) - 1] for i in range(count)]
    ways = {RAW: _raw, CUTAWAY: _cutaway, NNSIGHT: _nnsight, LENS: _lens}
    return {name: partial(way, case, wanted) for name, way in ways.items() if name in libraries}


Wanted = list[tuple[int, str]]


def _raw(case: Case, wanted: Wanted) -> list[Tensor]:
    found: list[Tensor] = []

    def keep(_module: Any, _args: Any, output: Any) -> None:
        found.append(output[0] if isinstance(output, tuple) else output)

    modules = {"attention_output": "self_attn", "mlp_output": "mlp"}
    handles = []
    for number, part in wanted:
        layer = case.hf.model.layers[number]
        module = getattr(layer, modules[part]) if part in modules else layer
        handles.append(module.register_forward_hook(keep))
    try:
        with torch.no_grad():
            found.append(case.hf(**case.inputs).logits)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _cutaway(case: Case, wanted: Wanted) -> list[Tensor]:
    model, found = case.cutaway, []
    with model.trace(case.inputs):
        for number, part in wanted:
            layer = model.layers[number]
            if part == "attention_output":
                found.append(layer.self_attn.attention_output)
            elif part == "mlp_output":
                found.append(layer.mlp.mlp_output)
            else:
                found.append(layer.layer_output)
        found.append(model.logits)
    return found


def _nnsight(case: Case, wanted: Wanted) -> list[Tensor]:
    model = case.nnsight
    with torch.no_grad(), model.trace(**case.inputs):
        found = list().save()
        for number, part in wanted:
            layer = model.model.layers[number]
            if part == "attention_output":
                found.append(layer.self_attn.output[0])
            elif part == "mlp_output":
                found.append(layer.mlp.output)
            else:
                found.append(layer.output)
        found.append(model.output.logits)
    return found


def _lens(case: Case, wanted: Wanted) -> list[Tensor]:
    points = {"attention_output": "hook_attn_out", "mlp_output": "hook_mlp_out", "layer_output": "hook_out"}
    names = [f"blocks.{number}.{points[part]}" for number, part in wanted]
    with torch.no_grad():
        logits, cache = case.lens.run_with_cache(case.ids, names_filter=names)
    return [*(cache[name] for name in names), logits]
