"""The three Phi configs that ship, as transformers reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, PhiConfig, PhiForCausalLM

DATA = Path(__file__).parents[2] / "src/cutaway/data"
PUBLISHED = {
    # layers, hidden, head dim, rotary factor, dtype of the files, parameters
    "phi-1": (24, 2048, 64, 0.5, torch.float32, 1_418_270_720),
    "phi-1_5": (24, 2048, 64, 0.5, torch.float16, 1_418_270_720),
    "phi-2": (32, 2560, 80, 0.4, torch.float16, 2_779_683_840),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_config_is_the_published_one(name: str):
    layers, hidden, head_dim, factor, dtype, parameters = PUBLISHED[name]
    config = AutoConfig.from_pretrained(DATA / name)
    assert isinstance(config, PhiConfig)
    assert (config.num_hidden_layers, config.hidden_size, config.dtype) == (layers, hidden, dtype)
    assert (config.num_attention_heads, config.num_key_value_heads) == (32, 32)
    assert config.hidden_size // config.num_attention_heads == head_dim
    assert config.rope_parameters == {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": factor,
    }
    assert (config.vocab_size, config.max_position_embeddings, config.intermediate_size) == (51200, 2048, 4 * hidden)
    assert (config.hidden_act, config.layer_norm_eps) == ("gelu_new", 1e-5)
    assert not config.tie_word_embeddings
    assert not config.qk_layernorm
    assert config.resid_pdrop == (0.1 if name == "phi-2" else 0.0)
    with torch.device("meta"):
        model = PhiForCausalLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model.model.rotary_emb.inv_freq.shape == (16,)  # 32 rotated dimensions of every head


def test_only_phi_2_states_its_key_value_heads():
    stated = {
        name for name in PUBLISHED if "num_key_value_heads" in json.loads((DATA / name / "config.json").read_text())
    }
    assert stated == {"phi-2"}
