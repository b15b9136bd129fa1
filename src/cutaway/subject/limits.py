"""What a prompt must keep within: the rows of the embedding, and the positions that the model was made for; and the
device that it is taken on."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
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


def limits_of(hf: PreTrainedModel, vocab: int, embedding: nn.Module) -> Limits:
    """What the ids of a call must keep within, by a model's config, its embedding and its tables of positions."""
    context, ends_there = _context(hf, embedding)
    weight = getattr(embedding, "weight", None)
    if weight is None or not weight.is_floating_point():
        return Limits(vocab, context, ends_there)
    return Limits(vocab, context, ends_there, weight.shape[-1], weight.dtype)


def _context(hf: PreTrainedModel, embedding: nn.Module) -> tuple[int | None, bool]:
    """For how many positions the model was made, and whether it ends there."""
    config: PretrainedConfig = hf.config.get_text_config(decoder=True)
    context = getattr(config, "max_position_embeddings", None) or getattr(config, "max_target_positions", None)
    if not isinstance(context, int) or context < 1:
        return None, False  # as XLNet says that it has none
    rope: Any = getattr(config, "rope_parameters", None)
    if isinstance(rope, Mapping) and rope.get("rope_type") == "dynamic":  # pyright: ignore[reportUnknownMemberType]
        return None, False  # it turns by the length of the prompt
    ends = [] if rope else list(_tables(hf, embedding, context))
    return (min(ends), True) if ends else (context, False)


def _tables(hf: PreTrainedModel, embedding: nn.Module, context: int) -> Iterator[int]:
    """How many positions each of the model's tables has rows for.

    A table has a row a position, and up to a few more that stand before the first: of it OPT takes the third row for
    the first token. Where such a table has a padding row, as RoBERTa's, positions are counted from behind it. One that
    is no embedding is a constant, GPT-J's angles say; XGLM's has a few rows more and is made longer at need.
    """
    for module in hf.modules():
        if isinstance(module, nn.Embedding):
            rows, padding = module.num_embeddings, module.padding_idx
            if module is not embedding and context <= rows <= context + _ROWS_BEFORE:
                yield min(context, rows - (0 if padding is None else padding + 1))
        else:
            yield from (context for buffer in module.buffers(recurse=False) if _is_table(buffer, context))
            yield from (context for value in vars(module).values() if _is_table(value, context))


_ROWS_BEFORE = 4


def _is_table(value: Any, context: int) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2 and value.shape[0] == context and value.is_floating_point()


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
        raise InputError(f"{long}. Shorten it: {_NO_ROW}.")
    _warn(f"{long}. {_RUNS_ON}")


def check_new_tokens(length: int, new: int, limits: Limits, *, may_stop: bool) -> None:
    """Raises an `InputError`, or warns, where the tokens that are generated go beyond the context, and the prompt does
    not. The last token is not run, so that it may stand one beyond.

    Args:
        length: of the prompt.
        new: how many tokens are generated at most.
        limits: what the model keeps within.
        may_stop: whether the generation may end before; then it may keep within a table all the same.
    """
    if limits.context is None or length > limits.context or length + new - 1 <= limits.context:
        return
    long = (
        f"the prompt is {length} tokens long and up to {new} new ones are asked for, and the model's context is "
        f"{limits.context}"
    )
    most = limits.context - length + 1
    if not limits.ends_there:
        _warn(f"{long}. {_RUNS_ON}")
    elif may_stop:
        _warn(f"{long}. Unless it stops before, it fails there: {_NO_ROW}. max_new_tokens={most} keeps within it.")
    else:
        raise InputError(f"{long}. Ask for {most} at most, max_new_tokens={most}: {_NO_ROW}.")


_NO_ROW = "there is no row for positions beyond in its table of positions"
_RUNS_ON = "Nothing in it ends there, and the model runs; it was not trained on positions beyond."


def _warn(message: str) -> None:
    warnings.warn(message, LongPromptWarning, stacklevel=_above_the_package())


def _above_the_package() -> int:
    """At which level of the stack the line stands that called the package, as `warnings` counts for whoever calls the
    caller of this."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level
