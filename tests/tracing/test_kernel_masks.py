"""A kernel's mask, in whatever form it comes, hides from the scores what eager attention hides."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PhiForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cutaway import StandardizedTransformer
from tests import tiny

LENGTHS = {"left": [3, 6, 5], "right": [3, 6, 5], "none": [6, 6, 6]}
LAYER = "layers.1.self_attn."


def mask_of(padding: str) -> Tensor:
    place = torch.arange(6)[None] if padding == "right" else 5 - torch.arange(6)[None]
    return (place < torch.tensor(LENGTHS[padding])[:, None]).long()


def unpadded(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What a flash kernel computes of its `[batch key]` mask: causal, aligned at the last position."""
    queries, keys = query.shape[2], key.shape[2]
    allowed = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)[None, None]
    if sliding_window is not None:
        allowed = allowed & allowed.new_ones(queries, keys).triu(keys - queries - sliding_window + 1)
    if attention_mask is not None:
        assert attention_mask.ndim == 2
        allowed = allowed & attention_mask[:, None, None].bool()
    return sdpa_attention_forward(module, query, key, value, allowed, **kwargs)


@pytest.fixture(scope="module", autouse=True)
def flash_kernel() -> Iterator[None]:
    masks = AttentionMaskInterface._global_mapping
    AttentionInterface.register("unpadded", unpadded)
    AttentionMaskInterface.register("unpadded", masks["flash_attention_2"])
    yield
    del AttentionInterface._global_mapping["unpadded"], masks["unpadded"]


@lru_cache(maxsize=4)
def hf(attention: str) -> PhiForCausalLM:
    return tiny.fresh("P-gqa", attention)


def arguments(padding: str, cached: int, attention: str) -> dict[str, Any]:
    """What a pass over the last tokens is called with, the first ones being in a cache."""
    mask = mask_of(padding)
    given: dict[str, Any] = {"attention_mask": mask}
    if cached:
        cache = DynamicCache(config=hf(attention).config)
        with torch.no_grad():
            hf(attention)(input_ids=tiny.IDS[:, :cached], attention_mask=mask[:, :cached], cache=cache)
        given["cache"] = cache
    return given


@pytest.mark.parametrize("attention", ["sdpa", "unpadded"])
@pytest.mark.parametrize("cached", [0, 3, 5])
@pytest.mark.parametrize("padding", LENGTHS)
def test_scores_and_pattern_are_those_of_eager_attention(padding: str, cached: int, attention: str) -> None:
    ids, real = tiny.IDS[:, cached:], mask_of(padding)[:, cached:].bool()
    with torch.no_grad():
        plain = hf("eager")(
            input_ids=ids, output_attentions=True, output_hidden_states=True, **arguments(padding, cached, "eager")
        )
    model = StandardizedTransformer(hf(attention), check=False)
    with model.trace(ids, **arguments(padding, cached, attention)):
        stream = model.layers[1].layer_input
        scores = model.layers[1].self_attn.attention_scores
        pattern = model.layers[1].self_attn.attention_probabilities
        logits = model.logits
    expected = plain.attentions[1].transpose(1, 2)[real]
    torch.testing.assert_close(stream[real], plain.hidden_states[1][real], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(pattern.transpose(1, 2)[real], expected, atol=1e-5, rtol=1e-4)
    hidden = scores.transpose(1, 2)[real] < -1e30
    assert torch.equal(hidden, expected == 0)
    torch.testing.assert_close(logits[real], plain.logits[real], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("attention", ["sdpa", "unpadded"])
def test_a_query_that_may_see_nothing_gives_nothing_where_its_kernel_gives_nothing(attention: str) -> None:
    model = StandardizedTransformer(hf(attention), check=False)
    with model.trace(tiny.IDS, attention_mask=mask_of("left")):
        before = model.layers[0].self_attn.attention_head_outputs
    with model.trace(tiny.IDS, attention_mask=mask_of("left")):
        model.layers[0].self_attn.attention_probabilities[:, :, 5] += 1e-6
        after = model.layers[0].self_attn.attention_head_outputs
    assert before[0, :3].abs().max() == 0
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_mask_that_is_added_is_added(dtype: torch.dtype) -> None:
    added = torch.randn(3, 1, 6, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    plain = tiny.fresh("P-gqa", "sdpa", dtype)
    model = StandardizedTransformer(plain, check=False)
    with torch.no_grad():
        expected = plain(input_ids=tiny.IDS, attention_mask=added).logits
    assert torch.equal(model.read(tiny.IDS, "logits", attention_mask=added)["logits"], expected)
    with model.trace(tiny.IDS, attention_mask=added):
        queries = model.layers[0].self_attn.attention_queries
        keys = model.layers[0].self_attn.attention_keys.repeat_interleave(2, dim=1)
        scores = model.layers[0].self_attn.attention_scores
    products = queries.double() @ keys.double().mT * queries.shape[-1] ** -0.5
    torch.testing.assert_close(scores.double(), products + added, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("padding", ["left", "none"])
@pytest.mark.parametrize("cached", [0, 3])
def test_a_window_that_a_flash_kernel_is_told_of_hides_what_is_before_it(cached: int, padding: str) -> None:
    ids, plain = tiny.IDS[:, cached:], hf("unpadded")
    with torch.no_grad():
        expected = plain(input_ids=ids, sliding_window=2, **arguments(padding, cached, "unpadded")).logits
    model = StandardizedTransformer(plain, check=False)
    with model.trace(ids, sliding_window=2, **arguments(padding, cached, "unpadded")):
        pattern = model.layers[1].self_attn.attention_probabilities
        pattern[:] = pattern * 1.0 + 1e-7  # an edit, so that what flows on is mixed by this pattern
        logits = model.logits
    distance = torch.arange(cached, 6)[:, None] - torch.arange(6)
    real = mask_of(padding)[:, cached:].bool()
    seen = (pattern > 1e-6).any(1)[real]
    assert not seen[:, None].logical_and(((distance < 0) | (distance >= 2)).expand(3, -1, -1)[real][:, None]).any()
    torch.testing.assert_close(logits[real], expected[real], atol=1e-3, rtol=1e-3)


def test_attention_both_ways_sees_what_comes_after() -> None:
    plain = tiny.fresh("P-gqa", "sdpa")
    with torch.no_grad():
        expected = plain(input_ids=tiny.IDS, attention_mask=torch.ones_like(tiny.IDS), is_causal=False).logits
    model = StandardizedTransformer(plain, check=False)
    with model.trace(tiny.IDS, is_causal=False):
        for layer in model.layers:
            assert (layer.self_attn.attention_probabilities > 0).all()
        torch.testing.assert_close(model.logits, expected, atol=1e-4, rtol=1e-4)
