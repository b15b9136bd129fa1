"""What happens between a block's modules and values, and has no module of its own: rotary, products, sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.part import Part
from cutaway.families.stream import names_in

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_TERMS = {"layer_input": "the stream", "attention_output": "attention", "mlp_output": "the MLP"}


def rotary_dims(model: StandardizedTransformer) -> int:
    """How many dimensions of a head the rotary turns; 0 where the family has none."""
    rope: dict[str, Any] | None = getattr(model.config, "rope_parameters", None)
    if not rope:
        return 0
    return int(model.sizes["qk_head_dim"] * rope.get("partial_rotary_factor", 1.0))


def is_parallel(model: StandardizedTransformer) -> bool:
    """Whether attention and MLP stand side by side, with no stream between them."""
    return "layer_mid" not in model._subject.family.values


def is_gated(model: StandardizedTransformer) -> bool:
    """Whether the MLP has a gate."""
    return "gate_proj" in model._subject.family.modules["mlp"]


def operations_of(model: StandardizedTransformer) -> list[Part]:
    """The operations of one block."""
    found: list[Part] = []
    turned, width = rotary_dims(model), model.sizes["qk_head_dim"]
    if turned:
        share = "every dimension" if turned == width else f"the first {turned} of {width} dimensions"
        base = model.config.rope_parameters.get("rope_theta", 10000.0)
        meaning = f"turns {share} of each query and key head by position; base {base:,.0f}"
        found.append(Part("attention.rotary", "operation", "rotary", meaning=meaning))
    group = model.sizes["num_heads"] // model.sizes["num_kv_heads"]
    shared = f"; each key head serves {group} query heads" if group > 1 else ""
    found += [
        Part(
            "attention.product",
            "operation",
            "query · key",
            meaning=f"every query times every key, scaled by the head's width to the power −½, and masked{shared}",
        ),
        Part("attention.softmax", "operation", "softmax", meaning="makes each query's scores a distribution over keys"),
        Part("attention.mix", "operation", "mix", meaning="the values, mixed by the pattern, head by head"),
    ]
    if is_gated(model):
        found.append(Part("mlp.product", "operation", "gate × up", meaning="the activation times the up projection"))
    return found + sums_of(model)


def sums_of(model: StandardizedTransformer) -> list[Part]:
    """The two sums by which a block's output comes about, in their true order."""
    first, second, third = names_in(model._subject.family.stream)
    between = "`layer_mid`" if not is_parallel(model) else f"what `{first}` and `{second}` add up to"
    return [
        Part("layer.sum-1", "operation", "first sum", meaning=f"`{first}` + `{second}`, added first"),
        Part("layer.sum-2", "operation", "second sum", meaning=f"{between}, plus `{third}`: {_leaves(third)}"),
    ]


def _leaves(last: str) -> str:
    return f"{_TERMS[last]} comes last, and the result is `layer_output`"
