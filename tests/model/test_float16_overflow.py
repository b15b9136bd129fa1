"""A float16 Phi whose products of queries and keys pass float16's largest number, as phi-2's do."""

from __future__ import annotations

import warnings
from functools import lru_cache

import pytest
import torch
from transformers import PhiForCausalLM

from cutaway import StandardizedTransformer
from cutaway.errors import NonFiniteWarning
from tests import raw, tiny

CAUSAL = torch.ones(6, 6).tril().bool()


@lru_cache(maxsize=4)
def overflowing(attention: str) -> PhiForCausalLM:
    """Layers 1 and 2 overflow, layer 0 does not."""
    hf = tiny.fresh("P-gqa", attention)
    for block in hf.model.layers[1:]:
        for projection in (block.self_attn.q_proj, block.self_attn.k_proj):
            projection.weight.data *= 100
            projection.bias.data *= 100
    return hf.half()


def products(model: StandardizedTransformer, layer: int) -> torch.Tensor:
    found = model.read(
        tiny.IDS, f"layers.{layer}.self_attn.attention_queries", f"layers.{layer}.self_attn.attention_keys"
    )
    queries, keys = (tensor.double() for tensor in found.values())
    return queries @ keys.repeat_interleave(tiny.HEADS // keys.shape[1], 1).mT


def test_under_sdpa_every_pattern_is_finite_and_matches_float64() -> None:
    model = StandardizedTransformer(overflowing("sdpa"), check=False)
    found = model.read(tiny.IDS, "attention_scores", "attention_probabilities", "attention_head_outputs", "logits")
    assert products(model, 1).abs().max() > 65504
    for layer in range(tiny.LAYERS):
        at = f"layers.{layer}.self_attn.attention_"
        scores, pattern = found[at + "scores"], found[at + "probabilities"]
        assert scores[..., CAUSAL].isfinite().all()
        assert pattern.isfinite().all()
        torch.testing.assert_close(pattern.double().sum(-1), torch.ones(3, tiny.HEADS, 6).double(), atol=2e-3, rtol=0)
        expected = products(model, layer) * 8**-0.5
        largest = expected.abs().max()
        assert (scores.double() - expected)[..., CAUSAL].abs().max() <= 1e-3 * largest
        expected = expected.masked_fill(~CAUSAL, float("-inf")).softmax(-1)
        torch.testing.assert_close(pattern.double(), expected, atol=1e-3, rtol=0)
    assert found["logits"].isfinite().all()
    assert found["logits"].dtype == torch.float16


def test_under_sdpa_reading_patterns_leaves_the_logits_to_rounding() -> None:
    hf = overflowing("sdpa")
    expected = tiny.logits_of(hf)
    found = StandardizedTransformer(hf, check=False).read(tiny.IDS, "attention_probabilities", "logits")
    assert expected.isfinite().all()
    assert (found["logits"] - expected).abs().max() <= 0.01 * expected.abs().max()


def test_under_eager_the_hosts_own_nan_is_kept_and_reported_with_layer_product_and_remedy() -> None:
    hf = overflowing("eager")
    model = StandardizedTransformer(hf, check=False)
    largest = products(model, 1).abs().max().item()
    assert tiny.logits_of(hf).isnan().all()
    with pytest.warns(NonFiniteWarning) as caught, model.trace(tiny.IDS):
        scores = model.layers[1].self_attn.attention_scores
    assert torch.equal(scores.isfinite(), raw.value(hf, tiny.as_inputs(tiny.IDS), "attention_scores", 1).isfinite())
    message = str(caught[0].message)
    assert message.startswith("layer 1: attention_scores are not finite")
    assert f"a query and a key is {largest:.3g}" in message
    for words in ("float16 ends at 6.55e+04", "attn_implementation='sdpa'", "dtype=torch.bfloat16"):
        assert words in message


def test_under_eager_a_layer_that_does_not_overflow_does_not_warn() -> None:
    model = StandardizedTransformer(overflowing("eager"), check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.read(tiny.IDS, "layers.0.self_attn.attention_probabilities")
        model.read(tiny.IDS, "layers.1.self_attn.attention_queries")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_large_but_finite_pass_never_warns(attention: str) -> None:
    model = tiny.shared("P", attention, torch.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.read(tiny.LEFT_PADDED)
