"""The standard names of modules. A family's own name keeps working beside the standard one."""

from __future__ import annotations

from dataclasses import dataclass

from cutaway.vocabulary.values import Host


@dataclass(frozen=True)
class StandardModule:
    """A module under its standard name, on the host that holds it."""

    name: str
    host: Host
    meaning: str


_ROWS = (
    StandardModule("embed_tokens", "model", "the token embedding"),
    StandardModule("layers", "model", "the blocks, in order"),
    StandardModule("norm", "model", "the final norm"),
    StandardModule("lm_head", "model", "the projection onto the vocabulary"),
    StandardModule("input_layernorm", "layer", "the norm at the block's entrance"),
    StandardModule("self_attn", "layer", "the attention"),
    StandardModule(
        "mixer", "layer", "the token mixer that is no attention: a recurrence, or a convolution over positions"
    ),
    StandardModule("post_attention_layernorm", "layer", "the norm before the MLP, where a family has one of its own"),
    StandardModule("mlp", "layer", "the feed-forward network"),
    StandardModule("q_proj", "attention", "the query projection, where it is a module of its own"),
    StandardModule("k_proj", "attention", "the key projection, where it is a module of its own"),
    StandardModule("v_proj", "attention", "the value projection, where it is a module of its own"),
    StandardModule("q_norm", "attention", "the norm of queries before the rotary, where there is one"),
    StandardModule("k_norm", "attention", "the norm of keys before the rotary, where there is one"),
    StandardModule("o_proj", "attention", "the output projection"),
    StandardModule("in_proj", "mixer", "the projection that feeds the mixer"),
    StandardModule("conv1d", "mixer", "the short convolution over positions"),
    StandardModule("out_proj", "mixer", "the projection back to the stream"),
    StandardModule("router", "mlp", "what chooses the experts of a token"),
    StandardModule("experts", "mlp", "the experts that are chosen among"),
    StandardModule("shared_expert", "mlp", "the experts that every token goes through"),
    StandardModule("gate_proj", "mlp", "the gate's projection, where the MLP is gated"),
    StandardModule("up_proj", "mlp", "the up projection, where the MLP is gated"),
    StandardModule("act_fn", "mlp", "the activation function"),
    StandardModule("down_proj", "mlp", "the projection back to the stream"),
)

MODULES: dict[str, StandardModule] = {module.name: module for module in _ROWS}
"""All standard modules by name."""
