"""What is Llama's own: grouped heads, a gated MLP, and the types of its rotary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from cutaway import StandardizedTransformer
from cutaway.errors import UnsupportedModelError
from tests.families.models import IDS, build, llama, plain, wrapped

ROPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 12},
    "longrope": {
        "factor": 4.0,
        "original_max_position_embeddings": 4,
        "short_factor": [1.0] * 4,
        "long_factor": [1.5, 2.0, 3.0, 4.0],
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}


def test_grouped_heads_have_their_own_number_of_keys_and_values() -> None:
    model = wrapped("llama")
    assert (model.num_heads, model.num_kv_heads, model.head_dim) == (4, 2, 8)
    values = model.read(IDS)
    at = "layers.1.self_attn.attention_"
    assert values[f"{at}queries"].shape == (3, 4, 6, 8)
    assert values[f"{at}keys"].shape == values[f"{at}values"].shape == (3, 2, 6, 8)
    assert values[f"{at}probabilities"].shape == (3, 4, 6, 6)
    assert values[f"{at}head_outputs"].shape == (3, 6, 4, 8)


def test_heads_may_be_wider_than_their_share_of_the_stream() -> None:
    model = wrapped("llama-wide-heads")
    assert (model.hidden_size, model.num_heads, model.head_dim, model.num_kv_heads) == (32, 4, 16, 1)
    assert model.read(IDS, "layers.0.self_attn.attention_premix").popitem()[1].shape == (3, 6, 4, 16)


def test_queries_keys_and_values_are_the_projections_turned() -> None:
    model, hf = wrapped("llama"), plain("llama")
    values = model.read(IDS)
    attention: Any = hf.get_submodule("model.layers.1.self_attn")
    with torch.no_grad():
        entering = values["layers.1.attention_norm_output"]
        heads = [
            project(entering).unflatten(-1, (-1, 8)).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        ]
        cos, sin = hf.get_submodule("model.rotary_emb")(entering, torch.arange(6)[None])
        queries, keys = apply_rotary_pos_emb(heads[0], heads[1], cos, sin)
    at = "layers.1.self_attn.attention_"
    assert torch.equal(values[f"{at}queries"], queries)
    assert torch.equal(values[f"{at}keys"], keys)
    assert torch.equal(values[f"{at}values"], heads[2])


@pytest.mark.parametrize("rope", ROPES)
def test_every_type_of_rotary_keeps_the_vocabulary(rope: str) -> None:
    parameters = {"rope_type": rope, "rope_theta": 10000.0, **ROPES[rope]}
    hf: Any = build(llama(rope_parameters=parameters))
    model = StandardizedTransformer(hf)
    with torch.no_grad():
        expected = hf(IDS, attention_mask=torch.ones_like(IDS)).logits
    assert torch.equal(model.read(IDS, "logits", "attention_queries")["logits"], expected)


def test_every_type_of_rotary_that_transformers_has_for_llama_is_tested() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    assert set(ROPE_INIT_FUNCTIONS) - {"proportional"} <= set(ROPES)


def test_keys_that_published_configs_carry_are_considered() -> None:
    config = llama(pretraining_tp=2, is_llama_config=True, rope_interleaved=False, unk_token_id=0)
    StandardizedTransformer(config, dispatch=False)


def test_a_setting_that_was_not_considered_is_refused_by_its_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"`rope_interleaved` to True.*may change what a value means"):
        StandardizedTransformer(llama(rope_interleaved=True), dispatch=False)
