"""The workloads, one file each, in the order in which pages and tables show them."""

from __future__ import annotations

from benchmarks.workloads import (
    all_layers,
    every_value,
    forward,
    generation,
    gradients,
    one_layer,
    patching,
    patterns,
    zero_mlp,
)
from benchmarks.workloads.workload import Workload

WORKLOADS: tuple[Workload, ...] = tuple(
    module.WORKLOAD
    for module in (
        forward,
        one_layer,
        all_layers,
        every_value,
        patterns,
        zero_mlp,
        patching,
        generation,
        gradients,
    )
)
