"""Running the workloads: results compared first, then timed in turns."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from benchmarks.cases import CUTAWAY, RAW, Case
from benchmarks.settings import Settings
from benchmarks.timing import Seconds, interleave_for, ratio, spread
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.workload import Workload, library_of

Row = dict[str, Any]

LONG = 45.0
"""Seconds from which on a round is made once."""


def measure(cases: Iterable[Case], libraries: list[str], settings: Settings) -> Iterator[Row]:
    """A row for each workload on each case."""
    for case in cases:
        for workload in WORKLOADS:
            yield measure_one(workload, workload.case(case), libraries, settings)


def measure_large(case: Case, libraries: list[str], settings: Settings) -> Iterator[Row]:
    """The rows of the model of phi-2's size."""
    for workload in WORKLOADS:
        if workload.large:
            yield measure_one(workload, workload.case(case), libraries, settings)


def measure_one(workload: Workload, case: Case, libraries: list[str], settings: Settings) -> Row:
    """One workload on one case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        differences, seconds = workload.compared(case, libraries, settings.clock)
        ways = {name: partial(way, case) for name, way in workload.available(libraries, case).items()}
        if sum(map(sum, seconds.values())) < LONG:  # what takes longer was timed as it was compared
            seconds = interleave_for(
                ways, settings.budget, settings.least, settings.most, warmup=1, clock=settings.clock
            )
    return {
        "case": case.name,
        "number": workload.number,
        "title": workload.title,
        "tokens": case.ids.shape[1],
        "attention": "eager" if workload.eager else "sdpa",
        "rounds": len(seconds[RAW]),
        "ways": {name: _way(name, seconds, differences[name]) for name in ways},
    }


def _way(name: str, seconds: Seconds, difference: float) -> dict[str, Any]:
    low, high = spread(seconds[name])
    return {
        "library": library_of(name),
        "median_ms": 1e3 * statistics.median(seconds[name]),
        "quartiles_ms": [1e3 * low, 1e3 * high],
        "to_raw": ratio(seconds, name, RAW),
        "to_cutaway": ratio(seconds, name, CUTAWAY),
        "difference": difference,
    }
