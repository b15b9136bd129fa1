"""The attention interior of classes that have no family file yet: looking inside leaves the logits bit for bit.

Among them is one that drops its sparse mask where the config's setting is a name that it does not know.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, DeepseekV32Config, Gemma2Config, GptOssConfig, PretrainedConfig

from cutaway.sites import Moment
from cutaway.tracing import attach
from cutaway.tracing.interior import uses_interface

_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.3,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}

CONFIGS: dict[str, PretrainedConfig] = {
    "sparse mask by the setting's name": DeepseekV32Config(
        **_SIZES,
        num_key_value_heads=4,
        moe_intermediate_size=24,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=2,
        q_lora_rank=12,
        kv_lora_rank=8,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
        index_topk=3,
        index_head_dim=8,
        index_n_heads=2,
        mlp_layer_types=["dense", "sparse"],
    ),
    "sinks": GptOssConfig(
        **_SIZES, num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4
    ),
    "soft cap": Gemma2Config(**_SIZES, num_key_value_heads=2, head_dim=8, sliding_window=4, attn_logit_softcapping=5.0),
}
CASES = [(name, "eager") for name in CONFIGS] + [("sparse mask by the setting's name", "sdpa")]
MOMENTS: tuple[Moment, ...] = ("arguments", "softmax", "pattern", "result")


@pytest.mark.parametrize("moments", [("arguments", "result"), MOMENTS], ids=["around", "inside"])
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_logits_are_the_plain_models(name: str, attention: str, moments: tuple[Moment, ...]) -> None:
    torch.manual_seed(0)
    hf = AutoModelForCausalLM.from_config(CONFIGS[name], attn_implementation=attention).eval()
    ids = torch.tensor([[5, 9, 33, 2, 61, 17, 8], [7, 7, 1, 40, 8, 3, 12]])
    seen: list[str] = []
    inside = [
        module for module in hf.modules() if uses_interface(type(module)) and "Attention" in type(module).__name__
    ]
    assert len(inside) == 2
    with torch.no_grad():
        expected = hf(input_ids=ids).logits
        attachments = [
            attach(module, moment, lambda _, moment=moment: seen.append(moment), lambda: True)
            for module in inside
            for moment in moments
        ]
        try:
            found = hf(input_ids=ids).logits
        finally:
            for attachment in attachments:
                attachment.remove()
    assert torch.equal(found, expected)
    assert seen == [*moments] * 2
