"""All measurements, in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import Case, installed, mini_case, wide_case
from benchmarks.growth import curves
from benchmarks.large import large_case
from benchmarks.machine import machine
from benchmarks.measure import measure, measure_large
from benchmarks.memory import peaks
from benchmarks.settings import Settings
from benchmarks.startup import starts
from benchmarks.table import print_rows
from benchmarks.timing import clock_for


def run(settings: Settings, programs: Path, *, threads: int, large: bool) -> dict[str, Any]:
    """Measures everything; the results are what the JSON file holds.

    Args:
        settings: how much.
        programs: a folder for the programs that are started.
        threads: torch's.
        large: whether the model of phi-2's size is measured too.
    """
    torch.set_num_threads(threads)
    settings = replace(settings, clock=clock_for(threads))
    libraries = installed()
    began = time.perf_counter()
    results: dict[str, Any] = {"machine": machine(), "threads": threads, "libraries": libraries}
    _say("starts", began)
    results["starts"] = starts(libraries, settings.starts, programs)
    _say("peak memory", began)
    results["memory"] = peaks("wide", libraries)
    results["workloads"] = print_rows(measure(_cases(), libraries, settings))
    _say("growth", began)
    results["growth"] = curves(libraries, settings.growth_rounds, clock=settings.clock)
    results["large"] = None
    if large:
        _say("a Phi of phi-2's size", began)
        results["large"] = print_rows(measure_large(large_case(), libraries, settings))
    results["seconds"] = round(time.perf_counter() - began)
    return results


def _cases() -> Iterator[Case]:
    yield mini_case()
    yield wide_case()


def _say(what: str, began: float) -> None:
    print(f"{time.perf_counter() - began:4.0f} s  {what}", file=sys.stderr, flush=True)
