"""`cutaway verify`, `picture` and `view`, run in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import PhiForCausalLM

from cutaway.drawing import KINDS
from tests.cli.running import run, wrong


def test_verify_ends_with_status_0_where_all_agrees(tiny_folder: str) -> None:
    out, _ = run("verify", tiny_folder, "--prompt", "def f(x): return x")
    assert "attention_probabilities" in out
    assert "18 tokens" in out
    assert "All 56 values agree." in out


def test_verify_ends_with_status_1_where_a_value_parts(tiny_folder: str, tmp_path: Path) -> None:
    hf = PhiForCausalLM.from_pretrained(tiny_folder)
    with torch.no_grad():
        hf.model.layers[1].mlp.fc2.bias.add_(1)
    hf.save_pretrained(tmp_path / "other")
    out, _ = run("verify", tiny_folder, "--prompt", "abc", "--reference", str(tmp_path / "other"), status=1)
    assert "The first value that parts is layers.1.mlp.mlp_output" in out
    assert "model.layers.1.mlp.fc2.bias" in out
    out, _ = run("verify", tiny_folder, "--reference", str(tmp_path / "other"), "--json", status=1)
    assert json.loads(out)["first"] == "layers.1.mlp.mlp_output"


def test_verify_with_random_weights(tiny_folder: str) -> None:
    out, _ = run("verify", tiny_folder, "--random", "--dtype", "float64", "--prompt", "a b c")
    assert "float64" in out
    assert "values agree" in out


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_picture(kind: str, tiny_folder: str, tmp_path: Path) -> None:
    file = tmp_path / "picture.svg"
    out, _ = run("picture", kind, tiny_folder, "x = <b>\n", "-o", str(file))
    assert out.startswith(f"wrote {file}: tiny: ")
    assert file.read_text().startswith("<?xml")


def test_a_picture_of_one_head_in_the_dark(tiny_folder: str, tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    words = ("picture", "attention-head", tiny_folder, "-", "-o", str(file), "--layer", "-1", "--head", "1")
    out, _ = run(*words, "--theme", "dark", stdin="a b")
    assert out == f"wrote {file}: tiny: attention of layer 2, head 1\n"
    assert file.read_bytes().startswith(b"\x89PNG")
    told = wrong(*words[:-1], "7", "--force", stdin="a b")
    assert told == "there is no head 7: there are 3, from 0 to 2."


def test_view_writes_a_page(tiny_folder: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    out, _ = run("view", tiny_folder, "if a < b:", "-o", str(file))
    assert out == f"wrote {file}: open it in a browser\n"
    assert "default-src &#39;none&#39;" in file.read_text()


def test_a_picture_needs_a_prompt_and_a_layer_that_it_shows(tiny_folder: str, tmp_path: Path) -> None:
    file = str(tmp_path / "x.png")
    assert "give a text" in wrong("picture", "lens", tiny_folder, "-o", file)
    assert "leave out layer 1" in wrong("picture", "lens", tiny_folder, "x", "--layer", "1", "-o", file)
    assert "leave out head 1" in wrong("picture", "attention-layer", tiny_folder, "x", "--head", "1", "-o", file)
