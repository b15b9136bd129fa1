"""flex_attention compiles its kernel, so it is tried once, where torch can compile here."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests import raw, tiny


def test_the_attention_interior_under_flex_attention() -> None:
    ids = torch.arange(1, 1 + 3 * 16).reshape(3, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            hf = tiny.fresh("P-gqa", "flex_attention")
            before = tiny.logits_of(hf, ids)
        except Exception as error:
            pytest.skip(f"torch cannot compile flex_attention here: {type(error).__name__}")
        model = tiny.StandardizedTransformer(hf, check=False)
        with model.trace(ids):
            first = model.layers[0].layer_output
            assert torch.equal(model.logits, before)
        found = model.read(ids, *(name for name in raw.INTERIOR), "logits")
        with model.trace(ids):
            model.layers[1].self_attn.attention_scores[..., 0] -= 100
            edited = model.logits
    inputs, plain = tiny.as_inputs(ids), tiny.plain("P-gqa", "eager")
    torch.testing.assert_close(first, raw.value(plain, inputs, "layer_output", 0), atol=1e-4, rtol=1e-4)
    for name in raw.INTERIOR:
        expected = raw.value(plain, inputs, name, 1)
        torch.testing.assert_close(found[f"layers.1.self_attn.{name}"], expected, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(found["logits"], before, atol=1e-3, rtol=1e-4)
    assert not torch.allclose(edited, before, atol=0.1)
    assert hf.config._attn_implementation == "flex_attention"
