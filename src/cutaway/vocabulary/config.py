"""The standard names of a model's sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConfigName:
    """A size under its standard name."""

    name: str
    meaning: str


_ROWS = (
    ConfigName("num_layers", "blocks"),
    ConfigName("hidden_size", "width of the residual stream"),
    ConfigName("num_heads", "query heads in a block"),
    ConfigName("num_kv_heads", "key and value heads in a block"),
    ConfigName("head_dim", "width of a head's values"),
    ConfigName("qk_head_dim", "width of a head's queries and keys"),
    ConfigName("vocab_size", "rows of the embedding, padding included"),
    ConfigName("intermediate_size", "neurons in a block's MLP"),
    ConfigName("num_experts", "experts that a router chooses among"),
    ConfigName("experts_per_token", "experts that a token goes through, shared ones not counted"),
    ConfigName("kv_latent_size", "width of what keys and values are expanded from"),
    ConfigName("mixer_size", "width of what a token mixer's recurrence gives"),
    ConfigName("conv_size", "channels of a token mixer's convolution"),
)

CONFIG_NAMES: dict[str, ConfigName] = {row.name: row for row in _ROWS}
"""All standard config names."""
