"""Tiny random models of the families: large weights, biases and norms off their defaults, so that a fault shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    GPT2Config,
    GPTJConfig,
    GPTNeoXConfig,
    LlamaConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from cutaway import StandardizedTransformer

IDS = torch.tensor([[5, 9, 33, 2, 61, 17], [7, 7, 1, 40, 8, 3], [50, 4, 12, 29, 6, 11]])
"""Three rows of six."""

PROMPTS = [[61, 17], [7, 7, 1, 40, 8], [50, 4, 12, 29, 6, 11, 23, 3]]
"""Rows of two, five and eight, to be padded on the left."""

_SIZES = {"vocab_size": 64, "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
_USUAL = {
    **_SIZES,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 48,
}


def llama(**changes: Any) -> LlamaConfig:
    return LlamaConfig(**{**_USUAL, "num_key_value_heads": 2, **changes})


def gpt2(**changes: Any) -> GPT2Config:
    return GPT2Config(**{**_SIZES, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 48, **changes})


def gptj(**changes: Any) -> GPTJConfig:
    return GPTJConfig(**{**_SIZES, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 48, **changes})


def opt(**changes: Any) -> OPTConfig:
    sizes = {name: size for name, size in _USUAL.items() if name not in ("intermediate_size", "initializer_range")}
    return OPTConfig(**{**sizes, "ffn_dim": 96, "init_std": 0.3, **changes})


def neox(**changes: Any) -> GPTNeoXConfig:
    return GPTNeoXConfig(**{**_USUAL, **changes})


def usual(model_type: str, **changes: Any) -> PretrainedConfig:
    """A config of the class of this `model_type`, in Llama's words."""
    return CONFIG_MAPPING[model_type](**{**_USUAL, **changes})


def grouped(model_type: str, **changes: Any) -> PretrainedConfig:
    """The same with two query heads to a key head."""
    return usual(model_type, num_key_value_heads=2, **changes)


def deepseek(**changes: Any) -> PretrainedConfig:
    latents = {"q_lora_rank": 12, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "n_shared_experts": 2}
    sizes = {"moe_intermediate_size": 24, "first_k_dense_replace": 1, "num_key_value_heads": 4}
    return usual("deepseek_v3", **{**latents, **experts, **sizes, **changes})


def mamba2(**changes: Any) -> PretrainedConfig:
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2, "state_size": 4}
    return CONFIG_MAPPING["mamba2"](**{**_SIZES, **sizes, "chunk_size": 4, "use_bias": True, **changes})


def qwen3_next(**changes: Any) -> PretrainedConfig:
    """Layers of all four pairs of kinds."""
    mixer = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 6,
        "linear_value_head_dim": 8,
    }
    kinds = {"layer_types": ["linear_attention", "full_attention"] * 2, "mlp_only_layers": [2, 3]}
    sizes = {"num_hidden_layers": 4, "head_dim": 16, "shared_expert_intermediate_size": 24}
    return grouped("qwen3_next", **{**_EXPERTS, **mixer, **kinds, **sizes, **changes})


_WINDOW = {"sliding_window": 3, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}

_WINDOWS_FIRST = {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
_FACTORS = {
    "residual_multiplier": 0.22,
    "embedding_multiplier": 12.0,
    "logits_scaling": 8.0,
    "attention_multiplier": 0.2,
}
_CAPS = {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 7.0}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": llama,
    "llama-biases": lambda: llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama-wide-heads": lambda: llama(head_dim=16, num_key_value_heads=1),
    "gpt2": gpt2,
    "gpt2-narrow": lambda: gpt2(n_inner=48, scale_attn_by_inverse_layer_idx=True),
    "gpt2-unscaled": lambda: gpt2(scale_attn_weights=False, tie_word_embeddings=False),
    "neox": neox,
    "neox-sequential": lambda: neox(use_parallel_residual=False),
    "neox-no-bias": lambda: neox(attention_bias=False, tie_word_embeddings=True),
    "gptj": lambda: gptj(rotary_dim=4, n_inner=48),
    "qwen2": lambda: grouped("qwen2"),
    "qwen2-window": lambda: grouped("qwen2", use_sliding_window=True, tie_word_embeddings=True, **_WINDOW),
    "qwen3": lambda: grouped("qwen3", head_dim=16),
    "qwen3-window": lambda: usual(
        "qwen3", num_key_value_heads=4, head_dim=4, attention_bias=True, use_sliding_window=True, **_WINDOW
    ),
    "mistral": lambda: grouped("mistral", sliding_window=None),
    "mistral-window": lambda: grouped("mistral", sliding_window=3, head_dim=16),
    "phi3": lambda: grouped("phi3", rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.5}),
    "phi3-window": lambda: usual(
        "phi3", num_key_value_heads=4, sliding_window=3, resid_pdrop=0.1, embd_pdrop=0.1, tie_word_embeddings=True
    ),
    "gemma2": lambda: grouped("gemma2", head_dim=16, sliding_window=3, query_pre_attn_scalar=24, **_CAPS),
    "gemma2-uncapped": lambda: usual(
        "gemma2", num_key_value_heads=4, head_dim=4, attention_bias=True, **_WINDOW, **dict.fromkeys(_CAPS)
    ),
    "gemma3": lambda: grouped("gemma3_text", head_dim=16, sliding_window=3, query_pre_attn_scalar=24, **_WINDOWS_FIRST),
    "gemma3-capped": lambda: usual(
        "gemma3_text", num_key_value_heads=4, head_dim=4, attention_bias=True, final_logit_softcapping=7.0, **_WINDOW
    ),
    "olmo2": lambda: grouped("olmo2"),
    "olmo2-biases": lambda: usual("olmo2", attention_bias=True, tie_word_embeddings=True),
    "granite": lambda: grouped("granite", **_FACTORS),
    "granite-biases": lambda: usual("granite", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "smollm3": lambda: grouped("smollm3", no_rope_layers=[1, 0, 1]),
    "smollm3-window": lambda: grouped(
        "smollm3", no_rope_layer_interval=2, use_sliding_window=True, sliding_window=3, attention_bias=True
    ),
    "stablelm": lambda: grouped("stablelm", use_qkv_bias=True),
    "stablelm-parallel": lambda: grouped(
        "stablelm", use_parallel_residual=True, qk_layernorm=True, tie_word_embeddings=True
    ),
    "mixtral": lambda: grouped("mixtral", sliding_window=3, num_local_experts=4),
    "qwen3_moe": lambda: grouped("qwen3_moe", head_dim=16, norm_topk_prob=True, **_EXPERTS),
}
"""Every case that the conformance tests run, by the name of its row in `native.NATIVE` and what is other in it."""

_FALCON = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_hidden_size": 96}


def falcon(**changes: Any) -> PretrainedConfig:
    return CONFIG_MAPPING["falcon"](**{**_SIZES, **_FALCON, **changes})


def bloom(**changes: Any) -> PretrainedConfig:
    return CONFIG_MAPPING["bloom"](**{**_SIZES, "hidden_size": 32, "n_layer": 3, "n_head": 4, **changes})


APART: dict[str, Callable[[], PretrainedConfig]] = {
    "phi": lambda: usual("phi", partial_rotary_factor=0.5, qk_layernorm=True),
    "bloom": bloom,
    "bloom-untied": lambda: bloom(tie_word_embeddings=False, n_head=6, hidden_size=36),
    "falcon": falcon,
    "falcon-groups": lambda: falcon(new_decoder_architecture=True, num_kv_heads=2, bias=True),
    "falcon-one-norm": lambda: falcon(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1),
    "falcon-alibi": lambda: falcon(alibi=True, parallel_attn=False, multi_query=False, bias=True),
    "opt": lambda: opt(enable_bias=False),
    "opt-behind": lambda: opt(do_layer_norm_before=False, word_embed_proj_dim=16, activation_function="gelu"),
    "qwen3_moe-mixed": lambda: grouped("qwen3_moe", head_dim=8, attention_bias=True, mlp_only_layers=[1], **_EXPERTS),
    "gpt_oss": lambda: grouped("gpt_oss", head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=3),
    "deepseek_v3": lambda: deepseek(),
    "deepseek_v3-no-query-latent": lambda: deepseek(q_lora_rank=None, n_group=1, topk_group=1, rope_interleave=False),
    "mamba2": mamba2,
    "qwen3_next": lambda: qwen3_next(),
}
"""Cases of families whose blocks the conformance tests do not describe: they have tests of their own."""


def kernels(kind: str) -> tuple[str, ...]:
    """The implementations of attention that a case's class has, its own first."""
    return ("eager",) if kind.partition("-")[0] in ("gemma2",) else ("sdpa", "eager")


def build(
    config: PretrainedConfig, attention: str | None = None, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    """A model of this config with the same random weights each time, with the class's own attention unless told. In
    float64 experts are gone through one by one: the grouped product has no such type."""
    if dtype == torch.float64 and any("experts" in key for key in config.to_dict()):
        config._experts_implementation = "eager"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        with torch.no_grad():
            for parameter in hf.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
    return hf.to(dtype).eval()


def plain(kind: str, attention: str = "", dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A shared model; tests leave it as it is."""
    return _plain(kind, attention or kernels(kind)[0], dtype)


def wrapped(kind: str, attention: str = "", dtype: torch.dtype = torch.float32) -> StandardizedTransformer:
    return _wrapped(kind, attention or kernels(kind)[0], dtype)


@lru_cache(maxsize=64)
def _plain(kind: str, attention: str, dtype: torch.dtype) -> PreTrainedModel:
    return build(CONFIGS[kind](), attention, dtype)


@lru_cache(maxsize=64)
def _wrapped(kind: str, attention: str, dtype: torch.dtype) -> StandardizedTransformer:
    return StandardizedTransformer(_plain(kind, attention, dtype), check=False)


def left_padded() -> dict[str, Tensor]:
    """`PROMPTS` as one batch, with its mask."""
    longest = max(map(len, PROMPTS))
    rows = [[0] * (longest - len(row)) + row for row in PROMPTS]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in PROMPTS]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}
