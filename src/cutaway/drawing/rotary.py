"""What a model's rotary is, and one head's query and key before it."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from cutaway.drawing.heads import Head
from cutaway.drawing.tokens import name_of
from cutaway.errors import UnavailableValueError
from cutaway.model import StandardizedTransformer


class RotarySettings(NamedTuple):
    """How many of a head's dimensions turn, and the base of the frequencies."""

    dims: int
    base: float


def rotary_of(model: StandardizedTransformer) -> RotarySettings:
    """The rotary that the model's config tells of.

    Raises:
        UnavailableValueError: there is none, or one with scaled frequencies, which the pictures do not draw.
    """
    parameters: dict[str, Any] = getattr(model.config, "rope_parameters", None) or {}
    base = parameters.get("rope_theta")
    if base is None:
        raise UnavailableValueError(f"{name_of(model)} has no rotary: its config says no `rope_theta`.")
    if parameters.get("rope_type", "default") != "default":
        raise UnavailableValueError(
            f"{name_of(model)} scales its rotary's frequencies (`rope_type` {parameters['rope_type']}), and these "
            "pictures draw plain ones only."
        )
    return RotarySettings(int(model.sizes["qk_head_dim"] * parameters.get("partial_rotary_factor", 1.0)), float(base))


def query_before(model: StandardizedTransformer, prompt: str, at: Head) -> Tensor:
    """The last token's query of a head before the rotary, `[qk_head_dim]`; see `key_before`."""
    return _before(model, prompt, at.layer, at.head, "q")


def key_before(model: StandardizedTransformer, prompt: str, at: Head) -> Tensor:
    """The last token's key that a head reads, before the rotary, `[qk_head_dim]`.

    Raises:
        UnavailableValueError: the family has no projection of its own for it.
    """
    group = model.sizes["num_heads"] // model.sizes["num_kv_heads"]
    return _before(model, prompt, at.layer, at.head // group, "k")


def _before(model: StandardizedTransformer, prompt: str, layer: int, head: int, which: str) -> Tensor:
    attention = model.layers[layer].self_attn
    projection = f"{which}_proj"
    norm = f"{which}_layernorm"
    if projection not in model._subject.family.modules["attention"]:
        raise UnavailableValueError(
            f"{name_of(model)} projects queries, keys and values together, so that none stands alone before the rotary."
        )
    with model.trace(prompt):
        if getattr(model.config, "qk_layernorm", False):
            return getattr(attention, norm).output[0, head, -1]
        projected: Tensor = getattr(attention, projection).output[0, -1]
    return projected.reshape(-1, model.sizes["qk_head_dim"])[head]
