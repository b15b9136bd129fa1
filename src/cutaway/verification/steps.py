"""One step of a pass at a time: each value computed by the reference from the model's *own* values before it.

A whole pass of the reference tells whether two implementations agree; a step tells where they part, since nothing that
went wrong before reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cutaway.reference import Phi, PhiBlock, RotaryTables, gelu_new, rotate, softmax
from cutaway.reference.parts import Array, BoolArray, IntArray, LayerNorm


@dataclass(frozen=True)
class Setting:
    """What a step is made from.

    Attributes:
        phi: the reference.
        layer: the block's number; None before the first and after the last.
        own: the model's values by name: those of this block and of the model. `stream` is what left the block before.
        ids: `[batch seq]`.
        positions: `[batch seq]`, or `[1 seq]` for all rows.
        tables: the rotary's cosines and sines, `[batch seq pairs]` each, with a batch of 1 for all rows.
        blocked: true for pairs that may not be attended to; None where there are none.
    """

    phi: Phi
    layer: int | None
    own: Mapping[str, Array]
    ids: IntArray
    positions: IntArray
    tables: RotaryTables
    blocked: BoolArray | None

    @property
    def block(self) -> PhiBlock:
        """The reference's block."""
        assert self.layer is not None
        return self.phi.layers[self.layer]


def _projected(at: Setting, which: int) -> Array:
    return at.block.self_attn.project(at.own["attention_norm_output"])[which]


def _rotated(at: Setting, which: int) -> Array:
    cos, sin = (table[:, None] for table in at.tables)  # [batch seq pairs] -> [batch 1 seq pairs]
    return rotate(_projected(at, which), cos, sin, at.block.self_attn.pairing)


def _scores(at: Setting) -> Array:
    return at.block.self_attn.score(at.own["attention_queries"], at.own["attention_keys"], at.blocked)


def side_by_side(at: Setting) -> Array:
    """The head outputs as the output projection takes them."""
    heads = at.own["attention_premix"]
    return heads.reshape(*heads.shape[:2], -1)  # [b s heads head_dim] -> [b s heads·head_dim]


def _summed(at: Setting) -> Array:
    return at.own["attention_output"] + at.own["mlp_output"] + at.own["layer_input"]


def norm_of(at: Setting) -> LayerNorm:
    """The norm of the block, or the final one."""
    return at.phi.norm if at.layer is None else at.block.input_layernorm


Step = Callable[[Setting], Array]

STEPS: dict[str, Step] = {
    "token_embeddings": lambda at: at.phi.embed_tokens[at.ids],
    "layer_input": lambda at: at.own["stream"],
    "attention_norm_output": lambda at: norm_of(at)(at.own["layer_input"]),
    "mlp_norm_output": lambda at: norm_of(at)(at.own["layer_input"]),
    "attention_queries": lambda at: _rotated(at, 0),
    "attention_keys": lambda at: _rotated(at, 1),
    "attention_values": lambda at: _projected(at, 2),
    "attention_scores": _scores,
    "attention_probabilities": lambda at: softmax(at.own["attention_scores"]),
    "attention_head_outputs": lambda at: at.block.self_attn.mix(
        at.own["attention_probabilities"], at.own["attention_values"]
    ),
    "attention_premix": lambda at: at.own["attention_head_outputs"],
    "attention_output": lambda at: at.block.self_attn.o_proj(side_by_side(at)),
    "mlp_input": lambda at: at.own["mlp_norm_output"],
    "mlp_activation": lambda at: gelu_new(at.block.mlp.fc1(at.own["mlp_input"])),
    "mlp_neurons": lambda at: at.own["mlp_activation"],
    "mlp_output": lambda at: at.block.mlp.down_proj(at.own["mlp_neurons"]),
    "layer_output": _summed,
    "final_norm_output": lambda at: norm_of(at)(at.own["stream"]),
    "lm_head_output": lambda at: at.phi.lm_head(at.own["final_norm_output"]),
    "logits": lambda at: at.own["lm_head_output"],
}
"""How each value comes from those before it."""

NEEDS: dict[str, tuple[str, ...]] = {
    "layer_input": ("stream",),
    "attention_norm_output": ("layer_input",),
    "mlp_norm_output": ("layer_input",),
    "attention_queries": ("attention_norm_output",),
    "attention_keys": ("attention_norm_output",),
    "attention_values": ("attention_norm_output",),
    "attention_scores": ("attention_queries", "attention_keys"),
    "attention_probabilities": ("attention_scores",),
    "attention_head_outputs": ("attention_probabilities", "attention_values"),
    "attention_premix": ("attention_head_outputs",),
    "attention_output": ("attention_premix",),
    "mlp_input": ("mlp_norm_output",),
    "mlp_activation": ("mlp_input",),
    "mlp_neurons": ("mlp_activation",),
    "mlp_output": ("mlp_neurons",),
    "layer_output": ("attention_output", "mlp_output", "layer_input"),
    "final_norm_output": ("stream",),
    "lm_head_output": ("final_norm_output",),
    "logits": ("lm_head_output",),
}
"""Which of the model's own values a step starts from."""

WEIGHTS: dict[str, tuple[str, ...]] = {
    "token_embeddings": ("embed_tokens",),
    "attention_norm_output": ("input_layernorm",),
    "mlp_norm_output": ("input_layernorm",),
    "attention_queries": ("self_attn.q_proj", "self_attn.q_layernorm"),
    "attention_keys": ("self_attn.k_proj", "self_attn.k_layernorm"),
    "attention_values": ("self_attn.v_proj",),
    "attention_output": ("self_attn.o_proj",),
    "mlp_activation": ("mlp.fc1",),
    "mlp_output": ("mlp.down_proj",),
    "final_norm_output": ("norm",),
    "lm_head_output": ("lm_head",),
}
"""Which modules' weights a step uses, by standard names."""


def can_run(name: str, at: Setting) -> bool:
    """Whether the model has all that the step starts from, with no NaN in it and no infinity but a mask's."""
    needed = NEEDS.get(name, ())
    return all(one in at.own and bool((at.own[one] < np.inf).all()) for one in needed)


def made(name: str, at: Setting) -> Array:
    """What the reference makes of the model's own values, which may hold infinities."""
    with np.errstate(invalid="ignore", over="ignore"):
        return STEPS[name](at)
