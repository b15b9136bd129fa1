"""Peak memory: how far one run of a workload raises a process's resident memory.

Each library has a process of its own, with the model opened in it. Each workload is done in a fork of it: once to fill
what is kept for later runs, and once more, whose highest resident memory is compared with the one before. Forks want a
process without a pool of threads, so that one thread computes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import warnings
from typing import Any

from benchmarks.cases import Case, mini_case, small_case, wide_case
from benchmarks.machine import forget_peak, process_memory
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.workload import Workload

SWEEP = "7"
"""A sweep of the wide model takes long, so that phi-mini's is measured in its stead."""

CASES = {"phi-mini": mini_case, "wide": wide_case, "small": lambda: small_case(2, 128)}


def peaks(case: str, libraries: list[str]) -> list[dict[str, Any]]:
    """The peaks of all workloads by library, in MiB, on one of `CASES`."""
    found: dict[str, dict[str, float]] = {}
    for library in libraries:
        command = [sys.executable, "-m", "benchmarks.memory", case, library]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for number, ways in json.loads(done.stdout.splitlines()[-1]).items():
            found.setdefault(number, {}).update(ways)
    titles = {workload.number: workload.title for workload in WORKLOADS}
    return [{"number": number, "title": titles[number], "peak_mib": ways} for number, ways in found.items()]


def _peak(case: Case, workload: Workload, way: str) -> float:
    """One way's peak in a fork, in MiB."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run = workload.ways[way]
            run(case)
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            before = process_memory("VmRSS")
            forget_peak()
            kept = run(case)
            os.write(sending, str((process_memory("VmHWM") - before) / 2**20).encode())
            del kept
            code = 0
        finally:
            os._exit(code)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return float(text)


def main() -> None:
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    name, library = sys.argv[1:]
    case = CASES[name]()
    found: dict[str, dict[str, float]] = {}
    for workload in WORKLOADS:
        run_on = workload.case(mini_case() if workload.number == SWEEP and name == "wide" else case)
        ways = workload.available([library], run_on)
        found[workload.number] = {way: _peak(run_on, workload, way) for way in ways}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
