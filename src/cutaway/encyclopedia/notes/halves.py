"""Copies of a model in float16, for the note on where float16 ends."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_LIMIT = 65504.0
"""The largest number of float16."""


def with_large_products(model: StandardizedTransformer, prompt: str) -> tuple[float, float, Mapping[str, Tensor]]:
    """The largest product of query and key before the scale, what it becomes, and the weights that make it so.

    Where the model's own product is beyond float16 already, no weight is changed. Otherwise the query and key
    projections of one block, the one with the largest product, are enlarged until it is.
    """
    interior = model.read(prompt, "attention_queries", "attention_keys")
    products: list[float] = []
    for layer in range(model.num_layers):
        queries = interior[f"layers.{layer}.self_attn.attention_queries"].float()
        keys = interior[f"layers.{layer}.self_attn.attention_keys"].float()
        keys = keys.repeat_interleave(model.num_heads // model.num_kv_heads, dim=1)
        products.append(float((queries @ keys.transpose(-1, -2)).tril().max()))
    largest = max(products)
    if largest > _LIMIT:
        return largest, largest, {}
    layer = products.index(largest)
    factor = (1.5 * _LIMIT / largest) ** 0.5
    attention = model.layers[layer].self_attn.module
    weights = {
        f"{layer}.{name}.{kind}": factor * getattr(getattr(attention, name), kind).detach()
        for name in ("q_proj", "k_proj")
        for kind in ("weight", "bias")
    }
    return largest, factor**2 * largest, weights


def copy_in_float16(
    model: StandardizedTransformer, weights: Mapping[str, Tensor], attention: str
) -> StandardizedTransformer:
    """A copy of the model in float16, under an implementation of attention and with some weights replaced."""
    hf: Any = copy.deepcopy(model.hf).half()
    hf.set_attn_implementation(attention)
    with torch.no_grad():
        for path, weight in weights.items():
            layer, name, kind = path.split(".")
            getattr(getattr(hf.model.layers[int(layer)].self_attn, name), kind).copy_(weight)
    return type(model)(hf, tokenizer=model.tokenizer, check=False)
