"""What is widened to float32 under a half-precision load: the inside of attention, and next tokens' probabilities."""

from __future__ import annotations

import pytest
import torch

from cutaway import StandardizedTransformer
from tests import tiny
from tests.families import models

HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
FAMILIES = pytest.mark.parametrize("family", ["phi", "llama", "gpt2", "neox"])


def model_of(family: str, dtype: torch.dtype, attention: str = "sdpa") -> StandardizedTransformer:
    if family == "phi":
        return tiny.shared("P-gqa", attention, dtype)
    return models.wrapped(family, attention, dtype)


@FAMILIES
@HALVES
def test_beside_a_kernel_scores_and_pattern_are_float32s_own(family: str, dtype: torch.dtype) -> None:
    model = model_of(family, dtype)
    with model.trace(models.IDS):
        attention = model.layers[1].self_attn
        queries, keys, values = attention.attention_queries, attention.attention_keys, attention.attention_values
        scores, pattern = attention.attention_scores, attention.attention_probabilities
        heads, logits = attention.attention_head_outputs, model.logits
    assert scores.dtype == pattern.dtype == torch.float32
    assert queries.dtype == heads.dtype == logits.dtype == dtype
    groups = model.num_heads // model.num_kv_heads
    keys, values = (one.double().repeat_interleave(groups, 1) for one in (keys, values))
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    products = queries.double() @ keys.mT * queries.shape[-1] ** -0.5
    torch.testing.assert_close(scores.double()[..., ~future], products[..., ~future], atol=1e-5, rtol=1e-5)
    expected = products.masked_fill(future, float("-inf")).softmax(-1)
    torch.testing.assert_close(pattern.double(), expected, atol=1e-5, rtol=1e-4)
    mixed = (expected @ values).transpose(1, 2)
    torch.testing.assert_close(heads, mixed.to(dtype), atol=torch.finfo(dtype).eps, rtol=torch.finfo(dtype).eps)


@HALVES
def test_under_an_eager_load_the_models_own_arithmetic_is_kept(dtype: torch.dtype) -> None:
    model, hf = tiny.shared("P-gqa", "eager", dtype), tiny.plain("P-gqa", "eager", dtype)
    with torch.no_grad():
        expected = hf(**tiny.as_inputs(tiny.IDS), output_attentions=True)
    found = model.read(tiny.IDS, "layers.1.self_attn.attention_probabilities", "logits")
    assert torch.equal(found["layers.1.self_attn.attention_probabilities"], expected.attentions[1])
    assert torch.equal(found["logits"], expected.logits)


@FAMILIES
@HALVES
def test_next_token_probs_are_a_softmax_in_float32(family: str, dtype: torch.dtype) -> None:
    model = model_of(family, dtype)
    with torch.no_grad():
        logits = model.hf(input_ids=models.IDS, attention_mask=torch.ones_like(models.IDS)).logits[:, -1]
    probs = model.read(models.IDS, "next_token_probs")["next_token_probs"]
    assert probs.dtype == torch.float32
    torch.testing.assert_close(probs.double(), logits.double().softmax(-1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3), atol=1e-5, rtol=0)
