"""What a check says of logits that are not finite: where it begins, why, and what helps under this very load."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from cutaway import StandardizedTransformer
from cutaway.errors import NonFiniteWarning
from tests.check import odd


def told(hf: Any) -> str:
    model = StandardizedTransformer(hf, check=False)
    with pytest.warns(NonFiniteWarning) as caught:
        report = model.check()
    assert len(caught) == 1
    assert len(report.untested) == 2 * bool(hf(torch.tensor([[1, 2, 3]])).logits.isnan().any())
    return str(caught[0].message)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_weights_that_are_not_finite_are_named_and_no_other_load_is_recommended(attention: str, bad: str) -> None:
    hf: Any = odd.model("llama", attention)
    with torch.no_grad():
        hf.model.layers[1].mlp.up_proj.weight[5, 3] = float(bad)
    message = told(hf)
    assert "the first value that is not is `layers.1.mlp.mlp_neurons`" in message
    assert "1 of the 3072 entries of `model.layers.1.mlp.up_proj.weight`" in message
    assert "attn_implementation" not in message
    assert "dtype=" not in message


def test_a_vocabulary_entry_that_is_ruled_out_leaves_every_promise_tested() -> None:
    hf: Any = odd.model("phi")
    with torch.no_grad():
        hf.lm_head.bias[7] = float("-inf")
    assert "`lm_head.bias`" in told(hf)


def test_products_that_overflow_under_eager_are_sent_to_sdpa_which_helps() -> None:
    hf = odd.spoilt("phi", "saturated", "eager", torch.float16)
    message = told(hf)
    assert "the first value that is not is `layers.0.self_attn.attention_scores`" in message
    assert "attn_implementation='sdpa'" in message
    for remedy in (
        odd.spoilt("phi", "saturated", "sdpa", torch.float16),
        odd.spoilt("phi", "saturated", "eager", torch.bfloat16),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            StandardizedTransformer(remedy)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_stream_that_overflows_is_sent_to_a_wider_dtype_which_helps(attention: str) -> None:
    def large(dtype: torch.dtype) -> Any:
        hf: Any = odd.model("llama", attention)
        with torch.no_grad():
            hf.model.layers[1].mlp.down_proj.weight *= 3e4
        return hf.to(dtype)

    message = told(large(torch.float16))
    assert "the first value that is not is `layers.1.mlp.mlp_output`" in message
    assert "Load it with dtype=torch.bfloat16 or dtype=torch.float32" in message
    assert "sdpa'" not in message
    for dtype in (torch.bfloat16, torch.float32):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            StandardizedTransformer(large(dtype))


def test_float32_that_overflows_is_not_sent_to_sdpa() -> None:
    hf: Any = odd.model("gpt2")
    with torch.no_grad():
        hf.transformer.h[1].mlp.c_proj.weight *= 1e38
    message = told(hf)
    assert "a value passes what float32 holds, 3.4e+38. float64 holds it" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StandardizedTransformer(hf.double())
