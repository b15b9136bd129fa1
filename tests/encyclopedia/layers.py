"""Tiny models whose layers are wired in every way that a page has to draw, by what is special in each."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

from cutaway import StandardizedTransformer
from tests.families.models import build

_SIZES = {"vocab_size": 64, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_USUAL = {
    **_SIZES,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 48,
}
_OTHERWISE = {name: size for name, size in _USUAL.items() if name != "intermediate_size"}
"""For classes that call the MLP's width otherwise."""


def config(model_type: str, **settings: Any) -> PretrainedConfig:
    return CONFIG_MAPPING[model_type](**settings)


def usual(model_type: str, **more: Any) -> PretrainedConfig:
    return config(model_type, **{**_USUAL, **more})


def grouped(model_type: str, **more: Any) -> PretrainedConfig:
    return usual(model_type, num_key_value_heads=2, head_dim=8, **more)


_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": lambda: grouped("llama"),
    "gemma2": lambda: grouped("gemma2", sliding_window=4, query_pre_attn_scalar=16),
    "olmo2": lambda: usual("olmo2", num_key_value_heads=2),
    "qwen3": lambda: grouped("qwen3"),
    "granite": lambda: usual(
        "granite", num_key_value_heads=2, residual_multiplier=0.22, embedding_multiplier=12.0, logits_scaling=8.0
    ),
    "stablelm": lambda: usual("stablelm", num_key_value_heads=2, use_parallel_residual=True),
    "cohere": lambda: usual("cohere", num_key_value_heads=2),
    "phi3": lambda: usual("phi3", num_key_value_heads=2),
    "gptj": lambda: config("gptj", **_SIZES, n_embd=32, n_layer=3, n_head=4, rotary_dim=4, n_positions=48),
    "opt": lambda: config("opt", **_OTHERWISE, ffn_dim=48),
    "openai-gpt": lambda: config("openai-gpt", **_SIZES, n_embd=32, n_layer=1, n_head=4, n_positions=48),
    "bloom": lambda: config("bloom", **_SIZES, hidden_size=32, n_layer=3, n_head=4),
    "falcon": lambda: config("falcon", **_OTHERWISE, ffn_hidden_size=48, alibi=True),
    "mixtral": lambda: grouped("mixtral", num_local_experts=4, num_experts_per_tok=2),
    "gpt_oss": lambda: grouped("gpt_oss", num_local_experts=4, num_experts_per_tok=2, sliding_window=4),
    "deepseek_v3": lambda: usual(
        "deepseek_v3",
        **_EXPERTS,
        num_key_value_heads=4,
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=12,
    ),
    "qwen3_next": lambda: grouped(
        "qwen3_next",
        **_EXPERTS,
        num_experts=4,
        shared_expert_intermediate_size=24,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    ),
    "mamba2": lambda: config(
        "mamba2", **_SIZES, hidden_size=32, num_hidden_layers=3, num_heads=8, head_dim=8, n_groups=2, state_size=8
    ),
}
"""Configs by the model's type, their settings off their defaults where these would hide something."""


@lru_cache(maxsize=32)
def model_of(kind: str) -> StandardizedTransformer:
    """A shared model of this kind, with its family as a user has it: from its file, or else derived."""
    return StandardizedTransformer(build(CONFIGS[kind](), attention="eager"), check=False)
