"""Phi in NumPy, written from scratch to be read from top to bottom, with the standard names for its values.

    from cutaway.reference import Phi

    model = Phi.from_pretrained("phi-mini")
    values = model([[318, 262, 11]], values=["layers.*.layer_output", "attention_probabilities"])
    values["layers.0.self_attn.attention_probabilities"]  # [batch num_heads query key]

It is a second implementation of what `transformers` computes with torch, and imports neither. Begin with `model.py`.
"""

from cutaway.reference.attention import PhiAttention
from cutaway.reference.block import PhiBlock
from cutaway.reference.cache import Cache
from cutaway.reference.config import PhiConfig
from cutaway.reference.generation import generate, sample
from cutaway.reference.mlp import PhiMLP
from cutaway.reference.model import Phi
from cutaway.reference.parts import LayerNorm, Linear, gelu_new, softmax
from cutaway.reference.record import Values
from cutaway.reference.rotary import (
    Pairing,
    Rotary,
    RotaryTables,
    pairing_permutation,
    rotary_angles,
    rotary_frequencies,
    rotary_tables,
    rotate,
)

__all__ = [
    "Cache",
    "LayerNorm",
    "Linear",
    "Pairing",
    "Phi",
    "PhiAttention",
    "PhiBlock",
    "PhiConfig",
    "PhiMLP",
    "Rotary",
    "RotaryTables",
    "Values",
    "gelu_new",
    "generate",
    "pairing_permutation",
    "rotary_angles",
    "rotary_frequencies",
    "rotary_tables",
    "rotate",
    "sample",
    "softmax",
]
