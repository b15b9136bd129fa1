"""Tiny random Phi models, made so that a fault shows: large weights, biases and norms away from their defaults.

The models that `plain` returns are shared, so a test must leave them as they are; `fresh` makes one to be spoilt.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import PhiConfig, PhiForCausalLM

from cutaway import StandardizedTransformer

KINDS: dict[str, dict[str, Any]] = {
    "P": {},
    "P-gqa": {"num_key_value_heads": 2},
    "P-qk-norm": {"qk_layernorm": True},
}
"""Full heads, grouped heads, and a norm over queries and keys."""

PAD, LAYERS, HIDDEN, HEADS, VOCAB = 0, 3, 32, 4, 64

IDS = torch.tensor([[5, 9, 33, 2, 61, 17], [7, 7, 1, 40, 8, 3], [50, 4, 12, 29, 6, 11]])
"""Three rows of six."""

LEFT_PADDED = {
    "input_ids": torch.tensor([[0, 0, 0, 2, 61, 17], [7, 7, 1, 40, 8, 3], [0, 4, 12, 29, 6, 11]]),
    "attention_mask": torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]]),
}
"""Three rows of three, six and five real tokens."""


def config(kind: str = "P", attention: str = "sdpa", **changes: Any) -> PhiConfig:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 128,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": 48,
        "initializer_range": 0.3,
        "pad_token_id": PAD,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": attention,
    }
    return PhiConfig(**{**sizes, **KINDS[kind], **changes})


def fresh(
    kind: str = "P", attention: str = "sdpa", dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any
) -> PhiForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf = PhiForCausalLM(config(kind, attention, **changes))
        with torch.no_grad():
            for parameter in hf.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
    return hf.to(dtype).eval()


def plain(kind: str = "P", attention: str = "sdpa", dtype: torch.dtype = torch.float32) -> PhiForCausalLM:
    """The model that `shared` wraps."""
    return _plain(kind, attention, dtype)


def shared(kind: str = "P", attention: str = "sdpa", dtype: torch.dtype = torch.float32) -> StandardizedTransformer:
    return _shared(kind, attention, dtype)


@lru_cache(maxsize=32)
def _plain(kind: str, attention: str, dtype: torch.dtype) -> PhiForCausalLM:
    return fresh(kind, attention, dtype)


@lru_cache(maxsize=32)
def _shared(kind: str, attention: str, dtype: torch.dtype) -> StandardizedTransformer:
    return StandardizedTransformer(_plain(kind, attention, dtype), check=False)


def logits_of(hf: PhiForCausalLM, inputs: Tensor | dict[str, Tensor] = IDS) -> Tensor:
    """The plain model's logits; a tensor of ids is run with a mask of ones."""
    with torch.no_grad():
        return hf(**as_inputs(inputs)).logits


def as_inputs(inputs: Tensor | dict[str, Tensor]) -> dict[str, Tensor]:
    return {"input_ids": inputs, "attention_mask": torch.ones_like(inputs)} if isinstance(inputs, Tensor) else inputs
