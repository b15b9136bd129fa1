"""What a prompt must keep within: the rows of the embedding, and the positions that the model was made for; and the
device that it is taken on."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from cutaway.errors import InputError, LongPromptWarning


class Limits(NamedTuple):
    """What a prompt must keep within.

    Attributes:
        vocab: how many rows the embedding has.
        context: for how many positions the model was made; None where there is no such number.
        ends_there: whether it cannot run beyond, since each position has a row of its own in a table; a rotary can.
        hidden_size: how wide an embedding is.
        dtype: of what dtype.
    """

    vocab: int
    context: int | None
    ends_there: bool = True
    hidden_size: int | None = None
    dtype: torch.dtype | None = None


def limits_of(config: PretrainedConfig, vocab: int, embedding: nn.Module) -> Limits:
    """What the ids of a call must keep within, by a model's config and its embedding."""
    rope: Any = getattr(config, "rope_parameters", None)
    context = getattr(config, "max_position_embeddings", None)
    if isinstance(context, int) and context < 1:
        context = None  # as XLNet says that it has none
    if isinstance(rope, Mapping) and rope.get("rope_type") == "dynamic":  # pyright: ignore[reportUnknownMemberType]
        context = None  # it turns by the length of the prompt
    weight = getattr(embedding, "weight", None)
    if weight is None or not weight.is_floating_point():
        return Limits(vocab, context, rope is None)
    return Limits(vocab, context, rope is None, weight.shape[-1], weight.dtype)


def device_of_ids(hf: PreTrainedModel, embedding: nn.Module) -> torch.device:
    """Where a model takes its ids: the embedding's device, or the one that it runs on where it is offloaded."""
    weight = getattr(embedding, "weight", None)
    if weight is not None and not weight.is_meta:
        return weight.device
    runs_on = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
    return hf.device if runs_on is None else torch.device(runs_on)


def check_ids(ids: Tensor, limits: Limits) -> None:
    """Raises an `InputError` for an id that the embedding has no row for."""
    if ids.is_meta:
        return
    vocab = limits.vocab
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= vocab:
        raise InputError(
            f"id {low if low < 0 else high} is outside the embedding, which has {vocab} rows. "
            "Is the tokenizer this model's own?"
        )


def check_length(length: int, limits: Limits) -> None:
    """Raises an `InputError`, or warns, where a prompt and what is in the cache before it go beyond the context."""
    if limits.context is None or length <= limits.context:
        return
    long = f"the prompt is {length} tokens long, and the model's context is {limits.context}"
    if limits.ends_there:
        raise InputError(f"{long}. Shorten it: there is no row for positions beyond in its table of positions.")
    warnings.warn(
        f"{long}. Its rotary turns positions beyond too, and the model runs; it was not trained on them.",
        LongPromptWarning,
        stacklevel=_above_the_package(),
    )


def _above_the_package() -> int:
    """At which level of the stack the line stands that called the package, as `warnings` counts for the caller."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level
