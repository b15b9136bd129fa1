"""The benchmarks on a tiny model, once each: they record, compare results, and judge nothing by time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import cases, growth, memory, startup
from benchmarks.cases import CUTAWAY, NNSIGHT, RAW, Case, small_case
from benchmarks.figures import draw
from benchmarks.goals import MINI, WIDE, goals
from benchmarks.large import large_case
from benchmarks.machine import machine
from benchmarks.measure import measure, measure_one
from benchmarks.page import page
from benchmarks.settings import SMALLEST
from benchmarks.table import print_rows
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.workload import relative_difference

LIBRARIES = cases.installed()


@pytest.fixture(scope="module")
def case() -> Case:
    return small_case(3, width=64, tokens=12)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.title)
def test_every_way_gives_what_raw_hooks_give(workload, case):
    row = measure_one(workload, workload.case(case), LIBRARIES, SMALLEST)
    assert row["ways"][RAW]["to_raw"] == 1
    assert row["ways"][CUTAWAY]["median_ms"] > 0
    assert {way["library"] for way in row["ways"].values()} == set(LIBRARIES)


def test_a_way_that_does_other_work_is_refused(case):
    workload = WORKLOADS[1]
    ways = {**workload.ways, CUTAWAY: lambda case: case.cutaway.read(case.inputs, "layers.0.layer_output")}
    wrong = type(workload)(workload.number, workload.title, ways)
    with pytest.raises(AssertionError, match="Cutaway differs by"):
        wrong.differences(case, [RAW, CUTAWAY])


def test_differences_are_told_relative_to_the_largest_entry():
    wanted = torch.tensor([1.0, -4.0, torch.finfo(torch.float32).min])
    assert relative_difference(torch.tensor([1.0, -3.0, 0.0]), wanted) == 0.25


def test_the_results_become_a_page(case, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(startup, "IMPORTS", {CUTAWAY: startup.IMPORTS[CUTAWAY]})
    mini, wide = small_case(2, width=64, tokens=12), case
    mini.name, wide.name = MINI, WIDE
    results = {
        "machine": machine(),
        "threads": 1,
        "libraries": LIBRARIES,
        "seconds": 1,
        "workloads": print_rows(measure([mini, wide], LIBRARIES, SMALLEST)),
        "memory": memory.peaks("small", [RAW, CUTAWAY]),
        "starts": startup.starts([RAW, CUTAWAY], 1, tmp_path / "programs", warmup=0),
        "growth": growth.curves(LIBRARIES, 1, depth=2),
        "large": None,
    }
    results = json.loads(json.dumps(results))
    text = page(results)
    assert "$" not in text
    assert all(f"### {workload.number}. {workload.title}" in text for workload in WORKLOADS)
    assert "20 tokens generated" in capsys.readouterr().out
    assert len(goals(results)) >= 10
    draw(results["growth"], tmp_path)
    assert len(list(Path(tmp_path).glob("performance-*.svg"))) == 5
    for name, peaks in ((row["title"], row["peak_mib"]) for row in results["memory"]):
        assert {RAW, CUTAWAY} <= set(peaks), name


def test_the_large_model_is_refused_where_it_does_not_fit(monkeypatch):
    monkeypatch.setattr("benchmarks.large.memory_available", lambda: 2**30)
    with pytest.raises(MemoryError, match="there are 1"):
        large_case()


def test_the_weights_are_shared_and_the_model_is_left_alone(case):
    copied = cases.twin(case.hf)
    assert copied.model.layers[0] is not case.hf.model.layers[0]
    assert all(a is b for a, b in zip(copied.parameters(), case.hf.parameters(), strict=True))
    assert case.eager.hf.config._attn_implementation == "eager"
    assert case.hf.config._attn_implementation == "sdpa"


@pytest.mark.skipif(NNSIGHT not in LIBRARIES, reason="the peers are not installed; `make bench` installs them")
def test_the_peers_are_measured_where_they_are_installed():
    assert len(LIBRARIES) > 2
