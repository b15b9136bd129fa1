"""Phi's block: one norm, and attention and MLP side by side. `PhiDecoderLayer` in transformers' `modeling_phi.py`.

    h   = input_layernorm(x)
    out = self_attn(h) + mlp(h) + x

The parallel form is that of GPT-J (Wang and Komatsuzaki 2021). Nothing goes from attention to MLP within a block.
"""

from __future__ import annotations

from cutaway.reference.attention import PhiAttention
from cutaway.reference.cache import Cache
from cutaway.reference.mlp import PhiMLP
from cutaway.reference.parts import Array, BoolArray, LayerNorm
from cutaway.reference.record import Record, ignore
from cutaway.reference.rotary import RotaryTables


class PhiBlock:
    """One block.

    Args:
        input_layernorm: the norm that feeds both halves.
        self_attn: the attention.
        mlp: the MLP.
    """

    def __init__(self, input_layernorm: LayerNorm, self_attn: PhiAttention, mlp: PhiMLP) -> None:
        self.input_layernorm = input_layernorm
        self.self_attn = self_attn
        self.mlp = mlp

    def __call__(
        self,
        x: Array,
        tables: RotaryTables,
        blocked: BoolArray | None = None,
        *,
        cache: Cache | None = None,
        layer: int = 0,
        record: Record = ignore,
    ) -> Array:
        """The stream after the block, `[batch seq hidden_size]` as before it; arguments as `PhiAttention` takes them.

        Attention and MLP are summed first and the stream is added last. Addition rounds, so the order is part of the
        definition: in it, `attention_output + mlp_output + layer_input` is `layer_output` bit for bit.
        """
        record("layer_input", x)
        h = self.input_layernorm(x)
        record("attention_norm_output", h)
        out, _ = self.self_attn(h, tables, blocked, cache=cache, layer=layer, record=record)
        record("mlp_norm_output", h)
        record("mlp_input", h)
        out += self.mlp(h, record)
        out += x
        record("layer_output", out)
        return out
