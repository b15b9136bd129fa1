"""Which key of a config tells each size that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutaway.families.family import setting

_KEYS = {
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "num_kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "v_head_dim"),
    "qk_head_dim": ("head_dim", "qk_head_dim"),
    "vocab_size": ("vocab_size",),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k"),
    "kv_latent_size": ("kv_lora_rank",),
}
"""What configs call each size; the one whose value is the measured one is taken."""


def keys_of(sizes: Mapping[str, int], config: Any) -> dict[str, str | int]:
    """For each size the config's key that says the same, or where none does, the size."""
    found: dict[str, str | int] = {}
    for name, size in sizes.items():
        keys = [key for key in _KEYS.get(name, ()) if setting(config, key) == size]
        found[name] = keys[0] if keys else size
    return found
