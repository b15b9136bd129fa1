"""`--json`: valid JSON on stdout and nothing else, in the shape that is documented; a pipe gets one row a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PhiForCausalLM

from cutaway.cli.terminal import print_json
from cutaway.errors import CheckError
from cutaway.vocabulary import COMMON, VALUES
from tests.cli.running import run


def data(*words: str, status: int = 0) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(run(*words, "--json", status=status)[0], parse_constant=refuse)


def test_show(tiny_folder: str) -> None:
    found = data("show", tiny_folder)
    assert list(found) == ["model", "load", "sizes", "modules"]
    assert found["sizes"]["num_layers"] == 3
    keys = ["name", "standard", "count", "class", "arguments", "differs", "values", "children"]
    nodes = [found["modules"]]
    for node in nodes:
        assert list(node) == keys
        nodes += node["children"]
    assert {node["standard"] for node in nodes} >= {"o_proj", None}
    values = {value["value"]: value for node in nodes for value in node["values"]}
    assert set(values) == {*COMMON, "queries_before_rotary", "keys_before_rotary"}
    assert list(values["logits"]) == ["value", "layout", "meaning", "read_only", "missing"]
    assert values["logits"]["missing"] is None
    assert "parallel" in values["layer_mid"]["missing"]


def test_support(tiny_folder: str) -> None:
    found = data("support", tiny_folder)
    assert list(found) == ["model", "load", "values", "weights"]
    assert set(found["values"][0]) >= {"value", "host", "layout", "axes", "meaning", "available", "layers", "where"}


def test_check(tiny_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = data("check", tiny_folder)
    assert list(found) == ["model", "holds", "broken", "promises", "untested", "derived", "taken_off"]
    assert (found["holds"], found["broken"]) == (True, None)
    assert all(set(promise) >= {"promise", "cases"} for promise in found["promises"])

    def fail(subject: object) -> None:
        raise CheckError("`layers.1.mlp.mlp_output` differs by 0.5.")

    monkeypatch.setattr("cutaway.model.standardized.check", fail)
    found = data("check", tiny_folder, status=1)
    assert (found["holds"], found["broken"]) == (False, "`layers.1.mlp.mlp_output` differs by 0.5.")


def test_read(tiny_folder: str) -> None:
    found = data("read", tiny_folder, "def f():", "attention_mask", "attention_scores", "input_size", "logits")
    assert list(found) == ["model", "prompt", "values"]
    rows = {row["path"]: row for row in found["values"]}
    keys = ["path", "layout", "axes", "shape", "dtype", "mean", "std", "min", "max", "masked", "value"]
    assert all(list(row) == keys for row in rows.values())
    logits = AutoModelForCausalLM.from_pretrained(tiny_folder)(torch.tensor([[0] * 8])).logits
    assert rows["logits"]["shape"] == list(logits.shape)
    assert rows["logits"]["axes"] == ["batch", "seq", "vocab_size"]
    assert rows["layers.0.self_attn.attention_scores"]["masked"] == 84  # 3 heads, 8 * 7 / 2 pairs that look ahead
    assert rows["input_size"]["value"] == [1, 8]
    assert rows["input_size"]["mean"] is None


def test_verify(tiny_folder: str, tmp_path: Path) -> None:
    words = ("verify", tiny_folder, "--prompt", "abc")
    found = data(*words)
    assert list(found) == ["model", "reference", "dtype", "tokens", "agrees", "first", "remarks", "values"]
    assert set(found["values"][0]) >= {"path", "name", "layer", "whole", "step", "tolerance", "verdict", "reason"}
    hf = PhiForCausalLM.from_pretrained(tiny_folder)
    with torch.no_grad():
        hf.model.layers[1].mlp.fc2.weight.zero_()
        hf.model.layers[1].mlp.fc2.bias.zero_()
    hf.save_pretrained(tmp_path / "other")
    found = data(*words, "--reference", str(tmp_path / "other"), status=1)  # as a share of zeros, anything is infinite
    apart = {value["path"]: value["whole"] for value in found["values"]}
    assert apart["layers.1.mlp.mlp_output"]["relative"] is None


def test_notes(tiny_folder: str) -> None:
    found = data("notes", tiny_folder, status=1)
    assert list(found) == ["model", "family", "notes"]
    for note in found["notes"]:
        assert list(note) == ["name", "title", "verdict", "claim", "why", "figures"]
        assert note["verdict"] in ("holds", "left out", "fails")
        assert all(set(figure) == {"what", "value"} for figure in note["figures"].values())
        assert (note["why"] is None) == (note["verdict"] == "holds")


def test_what_is_not_finite_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), 1.5, {"b": float("-inf")}], "c": (True, None, "nan")})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5, {"b": None}], "c": [True, None, "nan"]}


@pytest.mark.parametrize("columns", ["0", "20", "80"])
@pytest.mark.parametrize(
    "words",
    [
        ("show", "microsoft/phi-2"),
        ("support", "microsoft/phi-2"),
        ("read", "{model}", "a b c", "attention_scores", "input_size", "logits"),
        ("verify", "{model}", "--prompt", "a b c"),
        ("notes", "{model}"),
        ("check", "{model}"),
    ],
    ids=lambda words: words[0],
)
def test_a_pipe_gets_one_row_a_line_whatever_the_width(words, columns: str, tiny_folder: str) -> None:
    if columns != "0" and words[0] in ("verify", "notes", "check"):
        pytest.skip("the width is read in one place")
    line = [word.format(model=tiny_folder) for word in words]
    out, _ = run(*line, status=1 if words[0] == "notes" else 0, COLUMNS=columns)
    lines = out.split("\n")
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in lines)
    if words[0] in ("support", "read", "verify"):
        header, *rows = [line.split("\t") for line in lines[: lines.index("")]]
        assert {len(row) for row in rows} == {len(header)}
        names = {"support": set(VALUES), "read": {"input_size", "logits"}, "verify": {"attention_scores", "logits"}}
        assert {row[0] for row in rows} >= names[words[0]]
    if words[0] == "show":
        assert any("not here: Phi's block is parallel" in line for line in lines)
        assert "num_layers" in [line.split()[0] for line in lines if line and len(line.split()) == 2]
