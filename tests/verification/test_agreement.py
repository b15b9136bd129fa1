"""What agrees, and with what: dtypes, masks, choices of the config, folders, and what a verification says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PhiForCausalLM

import cutaway
from cutaway import StandardizedTransformer
from cutaway.errors import LoadError, UnsupportedModelError
from cutaway.reference import Phi
from cutaway.subject.source_names import data_folder
from cutaway.verification import Verification, tolerance_for, verify
from cutaway.verification.differences import difference
from cutaway.vocabulary.layouts import PATTERN, RESIDUAL
from tests import tiny

HAS_PHI_MINI = (data_folder("phi-mini") / "model.safetensors").is_file()


def verified(hf: PhiForCausalLM, prompt: Any = tiny.IDS, **options: Any) -> Verification:
    return verify(StandardizedTransformer(hf, check=False), prompt, **options)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", tiny.KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_phi_agrees(kind: str, attention: str, dtype: torch.dtype) -> None:
    found = verified(tiny.plain(kind, attention, dtype))
    assert found.agrees, str(found)
    assert len(found.compared) == 1 + 3 * 16 + 3 + 3 + 1  # embeddings, blocks, head; then the plain pass
    steps = [one.step.relative for one in found.compared if one.step is not None]
    assert max(steps) <= (1e-5 if dtype == torch.float32 else 1e-6)
    finest = [one for one in found.compared if dtype == torch.float64 and one.name == "logits"]
    assert all(one.whole.relative < 1e-12 for one in finest)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_padding_is_left_out(dtype: torch.dtype) -> None:
    found = verified(tiny.plain(dtype=dtype), tiny.LEFT_PADDED)
    assert found.agrees, str(found)
    assert found.tokens == int(tiny.LEFT_PADDED["attention_mask"].sum())


def test_the_model_is_as_it_was() -> None:
    hf = tiny.fresh(dtype=torch.float64)
    before = tiny.logits_of(hf)
    verified(hf)
    assert torch.equal(tiny.logits_of(hf), before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in hf.modules())


def test_a_model_from_a_config_and_progress() -> None:
    seen: list[tuple[int, int]] = []
    found = cutaway.verify(
        StandardizedTransformer(tiny.config(), check=False), progress=lambda done, of: seen.append((done, of))
    )
    assert found.agrees
    assert found.tokens == 32
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.skipif(not HAS_PHI_MINI, reason="phi-mini is not in the tree")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_phi_mini(dtype: torch.dtype) -> None:
    found = verify(StandardizedTransformer("phi-mini", dtype=dtype, check=False))
    assert found.agrees, str(found)
    steps = [one.step.relative for one in found.compared if one.step and one.name != "attention_probabilities"]
    assert max(steps) < tolerance_for(found.dtype).step / 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.fresh().save_pretrained(tmp_path / "phi")
    return tmp_path / "phi"


def test_a_model_is_held_against_the_folder_it_came_from(folder: Path) -> None:
    hf = PhiForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert verified(hf, reference=folder).agrees
    with torch.no_grad():
        hf.model.layers[2].self_attn.dense.bias.zero_()
    assert verified(hf).agrees  # what runs is what is in memory
    found = verified(hf, reference=folder)
    assert found.first is not None
    assert found.first.path == "layers.2.self_attn.attention_output"
    assert "`model.layers.2.self_attn.dense.bias` is up to" in found.first.reason
    assert "zero throughout" in found.first.reason


def test_a_conversion_to_the_wrong_pairing_is_named_as_weights(folder: Path) -> None:
    """The other pairing's order of rows in the weights, under Phi's own code."""
    hf = PhiForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        weight = hf.model.layers[0].self_attn.q_proj.weight
        weight.copy_(weight.view(4, 8, 32)[:, [0, 2, 1, 3, 4, 5, 6, 7]].reshape(32, 32))
    found = verified(hf, reference=folder)
    assert found.first is not None
    assert found.first.path == "layers.0.self_attn.attention_queries"
    assert found.first.reason.startswith("the weights are others: `model.layers.0.self_attn.q_proj.weight`")


def test_a_changed_config_shows_against_the_folder(folder: Path) -> None:
    hf = PhiForCausalLM.from_pretrained(folder, dtype=torch.float32, layer_norm_eps=0.04).eval()
    found = verified(hf, reference=folder)
    assert found.first is not None
    assert found.first.path == "layers.0.attention_norm_output"
    assert found.first.reason == "the norm's eps is about 0.04, not 1e-05"


def test_a_reference_of_another_size_or_nowhere(folder: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="`hidden_size` is 32 in the model and 2560 in the reference"):
        verified(tiny.plain(), reference=_phi_2_sized())
    with pytest.raises(LoadError, match="neither a folder nor a built-in name"):
        verified(tiny.plain(), reference="nowhere")


def _phi_2_sized() -> Phi:
    phi = Phi.from_config(tiny.config().to_dict(), seed=0)
    changed = {**phi.config.__dict__, "hidden_size": 2560}
    phi.config = type(phi.config)(**changed)
    return phi


def test_it_tells_what_it_found() -> None:
    hf = tiny.fresh()
    hf.model.layers[1].self_attn.scaling = 1.0
    found = verified(hf)
    text = str(found)
    assert "The first value that parts is layers.1.self_attn.attention_scores" in text
    assert "Likely reason: scores are not scaled." in text
    row = next(row for row in found.rows if row.name == "attention_scores")
    assert (row.verdict, row.layer) == ("parts", 1)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["first"] == "layers.1.self_attn.attention_scores"
    assert not data["agrees"]
    assert found["layers.0.layer_output"].verdict == "agrees"
    with pytest.raises(KeyError):
        found["layers.9.layer_output"]


def test_a_difference_counts_where_it_is_and_not_beside_a_huge_entry() -> None:
    expected = np.ones((1, 3, 4))
    expected[0, 0] = 1e4
    found = expected.copy()
    found[0, 2, 1] += 0.5
    apart = difference(found, expected, RESIDUAL, np.ones((1, 3), bool))
    assert (apart.absolute, apart.relative, apart.place) == (0.5, 0.5, (0, 2, 1))
    assert difference(found, expected, RESIDUAL, np.array([[True, True, False]])).relative == 0
    found[0, 1, 0] = np.nan
    assert difference(found, expected, RESIDUAL, np.ones((1, 3), bool)).relative == np.inf
    assert difference(found[:, :2], expected, RESIDUAL, np.ones((1, 3), bool)).relative == np.inf


def test_blocked_scores_only_have_to_be_out_of_reach() -> None:
    lowest = float(np.finfo(np.float32).min)
    blocked = np.array([[[[False, True], [False, False]]]])
    expected = np.array([[[[1.0, lowest], [2.0, 3.0]]]])
    real = np.ones((1, 2), bool)
    for fill, near in ((-np.inf, True), (lowest, True), (lowest + 1e32, True), (-1e9, False), (0.5, False)):
        found = expected.copy()
        found[0, 0, 0, 1] = fill
        assert difference(found, expected, PATTERN, real, blocked, lowest).within(1e-6) == near
