"""The oracles of the catalogue, on a few classes of different build; `make families` puts them to all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from catalogue import oracles, recorded, tiny
from catalogue.examine import BFLOAT16, LEFT, ORACLES, attached, examine
from catalogue.page import exact, holding
from catalogue.specimen import Specimen
from cutaway import StandardizedTransformer
from cutaway.families import FAMILIES

HELD: dict[str, set[str]] = {
    "llama": set(),
    "falcon": set(),
    "gpt_oss": set(),
    "olmo2": set(),
    "deepseek_v3": set(),
    "lfm2": set(),
    "mamba2": {"records"},
    "bart": set(),
    "zaya": {"sum"},
}
"""Classes, each with the oracles that find nothing to try there: a family with a file, and derived ones that write in
place, have sinks and experts, norms after the sublayers, latent keys, two kinds of layers, no attention, norms in the
stream, no sum."""


@pytest.mark.parametrize("name", HELD)
def test_every_oracle_holds(name: str) -> None:
    row = examine(tiny.case(name))
    assert row["state"] == "opened", row
    assert set(row["oracles"]) == {*ORACLES, BFLOAT16, LEFT}
    assert {oracle for oracle, found in row["oracles"].items() if not found["tried"]} == HELD[name]
    for oracle, found in row["oracles"].items():
        assert found["held"] == found["tried"], (oracle, found["differs"])
        assert found["tried"] or found["untried"], f"{oracle}: nothing was tried, and no reason is told"
    five_values_in_two_ways = 10 * len(row["layers"])
    assert row["oracles"]["edits"]["tried"] >= five_values_in_two_ways


ASKED = [oracles.logits, oracles.values, oracles.edits, oracles.gradients, oracles.skipping, oracles.sums]


@pytest.fixture(scope="module")
def changed() -> Specimen:
    """A plain model beside one that is opened and edited: what Cutaway gives is not what the plain model has."""
    hf = tiny.build(tiny.case("llama"), attention="eager")
    model = StandardizedTransformer(hf).edited({"layers.0.mlp.mlp_output": _more})
    specimen = Specimen(hf, model)
    assert specimen.spots
    return specimen


def _more(value: Tensor) -> Tensor:
    return value * 1.1


@pytest.mark.parametrize("oracle", [*ASKED, recorded.records, recorded.generation])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_oracle_finds_what_is_another_than_the_plain_model(oracle: Any, changed: Specimen) -> None:
    found = oracle(changed)
    assert found.tried
    assert found.held < found.tried
    assert found.differs


def test_a_sum_in_another_order_is_found() -> None:
    hf = tiny.build(tiny.case("llama"))
    family = replace(FAMILIES["llama"], stream=("attention_output", "mlp_output", "layer_input"))
    found = oracles.sums(Specimen(hf, StandardizedTransformer(hf, family=family, check=False)))
    assert (found.held, found.tried) == (0, 4)


def test_another_shape_than_that_of_a_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hf = tiny.build(tiny.case("llama"))
    specimen = Specimen(hf, StandardizedTransformer(hf))
    inputs = specimen.inputs
    scan = specimen.model.scan
    monkeypatch.setattr(type(specimen.model), "scan", lambda _, **given: scan(input_ids=given["input_ids"][:, :-1]))
    found = oracles.scanning(specimen)
    assert inputs["input_ids"].shape == (3, 6)
    assert found.held < found.tried


def test_what_stays_behind_is_found() -> None:
    hf = tiny.build(tiny.case("llama"))
    before = attached(hf)
    hook = hf.model.layers[0].register_forward_hook(lambda *_: None)
    assert attached(hf) != before
    hook.remove()
    assert attached(hf) == before


def test_nothing_tried_is_no_pass() -> None:
    assert holding({"oracles": {"sum": {"held": 0, "tried": 0}, "edits": {"held": 3, "tried": 3}}}) == (1, 1)
    row = {"layers": [{"sum": "layer_input"}], "oracles": {"sum": {"held": 0, "tried": 0}}}
    assert not exact(row)
