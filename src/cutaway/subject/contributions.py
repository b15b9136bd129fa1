"""What stands between an attention's output projection and the stream: nothing, or a norm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cutaway.sites import output_of
from cutaway.subject.places import Places


def why_no_parts(places: Places, layer: int) -> str:
    """Why what an attention adds to the stream is not the sum of its heads' parts; empty where it is."""
    site = places.family(layer).values.get("attention_output")
    if site is None:
        return f"It is a part of `attention_output`. {places.family(layer).why_lacking('attention_output')}"
    if site in (output_of(), output_of("o_proj")):
        return ""
    own = places.of_site("attention", layer, site)
    norm = places.modules.get(own)
    if norm is None or _epsilon(norm) is None:
        return f"What is added to the stream is the output of `{own}`, in which heads have no part of their own."
    project = places.modules.get(places.module("attention", layer, "o_proj"))
    if getattr(project, "bias", None) is not None:
        return f"`{own}` scales the output projection's bias too, so that the heads' parts do not add up without it."
    return ""


def norm_after_projection(places: Places, layer: int) -> nn.Module | None:
    """The norm through which an attention's output goes before it is added to the stream; None where there is none."""
    site = places.family(layer).values["attention_output"]
    if site in (output_of(), output_of("o_proj")):
        return None
    return places.modules[places.of_site("attention", layer, site)]


def as_normed(norm: nn.Module, parts: Tensor, whole: Tensor) -> Tensor:
    """Parts of what an RMSNorm is given, as parts of what it returns: times its weight, and over the root mean square
    of the whole.

    Args:
        norm: the norm.
        parts: `[… parts hidden_size]`.
        whole: their sum, `[… hidden_size]`.
    """
    epsilon: Any = _epsilon(norm)
    with torch.no_grad():
        weight = norm(torch.ones_like(whole[..., :1, :])) * (1 + epsilon) ** 0.5
    root = (whole.square().mean(dim=-1, keepdim=True) + epsilon).sqrt()
    return parts * (weight / root).unsqueeze(-2)


def _epsilon(norm: nn.Module) -> float | None:
    """The epsilon of an RMSNorm; None for what is none."""
    if "rmsnorm" not in type(norm).__name__.lower():
        return None
    found: Any = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    return found if isinstance(found, float) else None
