"""What a model is called with, from whatever a prompt is given as.

A prompt is a string, several strings, ids, several rows of ids, a tensor of either rank, or a tokenizer's output with
its mask. Rows of different lengths are padded on the left, so that every row's last token stands at the end. What the
tokenizer adds is what transformers' tokenizer adds, and nothing else. The caller's tensors are copied: an edit of
`input_ids` in a trace leaves them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig

from cutaway.errors import InputError

Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | Tensor | Mapping[str, Any]


class Limits(NamedTuple):
    """What ids must keep within: the embedding's rows, and the positions of the context where there is such an end."""

    vocab: int
    context: int | None


def prepare_inputs(
    prompt: Prompt,
    tokenizer: Any,
    config: PretrainedConfig,
    device: torch.device,
    limits: Limits,
    attention_mask: Tensor | Sequence[Any] | None = None,
    positions_from_mask: bool = False,
    past: int = 0,
    mask_if_untold: bool = True,
) -> dict[str, Tensor]:
    """The model's `input_ids` and `attention_mask`, `[batch seq]` each, on `device`, and whatever else a mapping holds.

    With `positions_from_mask`, rows that are padded on the left get `position_ids` too, unless the mapping holds them.
    With `past` positions in a cache, the mask is `[batch past+seq]`: that of all positions so far. Ids of equal length
    that come without a mask have one of ones, or with `mask_if_untold=False` none, so that transformers decides.

    Raises:
        InputError: the prompt is empty, mixes kinds, needs a tokenizer that the model lacks, or its ids are outside the
            embedding or longer than the context.
    """
    rest: dict[str, Any] = {}
    if isinstance(prompt, Mapping):
        rest = {str(name): value for name, value in prompt.items()}
        if "input_ids" not in rest:
            raise InputError(f"a mapping must hold `input_ids`; it holds {', '.join(rest) or 'nothing'}.")
        prompt = rest.pop("input_ids")
        given = rest.pop("attention_mask", None)
        if given is not None and attention_mask is not None:
            raise InputError("`attention_mask` is given twice, in the prompt and beside it. Give it once.")
        attention_mask = given if attention_mask is None else attention_mask
    ids, padding = _rows(prompt, tokenizer, config)
    _check_ids(ids, limits, past)
    masks: dict[str, Tensor] = {}
    if attention_mask is not None:
        masks["attention_mask"] = _mask(attention_mask, ids, past).to(device)
    elif padding is not None or mask_if_untold:
        padding = torch.ones_like(ids) if padding is None else padding
        masks["attention_mask"] = torch.cat([padding.new_ones(len(padding), past), padding], dim=1).to(device)
    rest = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in rest.items()}
    if positions_from_mask and masks and "position_ids" not in rest:
        rest.update(_positions(masks["attention_mask"], ids.shape[1], device))
    return {"input_ids": ids.to(device), **masks, **rest}


def cached_positions(forward: Mapping[str, Any]) -> int:
    """How many positions the cache holds that is among a forward's arguments."""
    cache: Any = forward.get("cache")
    cache = forward.get("past_key_values") if cache is None else cache
    return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0


def _positions(mask: Tensor, seq: int, device: torch.device) -> dict[str, Tensor]:
    """`position_ids` that count from each row's first real token, where a row is padded on the left.

    A zero further on hides a token and moves no other, so that a mask of the caller's own leaves positions alone.
    """
    if mask.ndim != 2 or mask.is_meta:
        return {}
    padding = ((mask != 0).cumsum(dim=1) == 0).sum(dim=1, keepdim=True)
    if not bool(padding.any()):
        return {}
    positions = (torch.arange(mask.shape[1], device=mask.device) - padding).clamp(min=0)
    return {"position_ids": positions[:, -seq:].to(device)}


def _rows(prompt: Any, tokenizer: Any, config: PretrainedConfig) -> tuple[Tensor, Tensor | None]:
    """Ids `[batch seq]` and their mask; None where they came as ids of equal length, which may hold padding or none."""
    if isinstance(prompt, np.ndarray):
        prompt = torch.as_tensor(prompt)
    if isinstance(prompt, Tensor):
        if prompt.ndim not in (1, 2) or prompt.is_floating_point() or prompt.dtype == torch.bool:
            raise InputError(
                f"ids are integers, of shape [seq] or [batch, seq]; the tensor is {prompt.dtype} of shape "
                f"{list(prompt.shape)}."
            )
        ids = prompt.detach().to(torch.long, copy=True)
        ids = ids[None] if ids.ndim == 1 else ids
        if ids.numel() == 0:
            raise InputError("the prompt is empty: give at least one token in each row.")
        return ids, None
    if isinstance(prompt, str):
        prompt = [prompt]
    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        raise InputError(
            "a prompt is a string, strings, ids, rows of ids, a tensor, or a tokenizer's output; it was given a "
            f"{type(prompt).__name__}."
        )
    items = list(prompt)
    if not items:
        raise InputError("the prompt is empty: give a string, or at least one token.")
    if all(isinstance(item, str) for item in items):
        rows = _tokenize(items, tokenizer)
    elif all(_is_id(item) for item in items):
        rows = [[int(item) for item in items]]
    elif all(isinstance(item, Tensor) or _is_row(item) for item in items):
        rows = [[int(i) for i in item] for item in items]
    else:
        kinds = sorted({type(item).__name__ for item in items})
        raise InputError(f"a batch is all strings, all ids, or all rows of ids; this one mixes {', '.join(kinds)}.")
    ids, mask = _pad_left(rows, _pad_id(tokenizer, config))
    untold = not isinstance(items[0], str) and bool(mask.all())
    return ids, None if untold else mask


def _is_id(item: Any) -> bool:
    if isinstance(item, Tensor):
        return item.ndim == 0 and not item.is_floating_point()
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "iu"
    return hasattr(item, "__index__") and not isinstance(item, bool)


def _is_row(item: Any) -> bool:
    return isinstance(item, (Sequence, np.ndarray)) and not isinstance(item, str) and all(_is_id(i) for i in item)


def _tokenize(texts: list[str], tokenizer: Any) -> list[list[int]]:
    if tokenizer is None:
        raise InputError(
            "this model has no tokenizer, so a text cannot be run. Give ids, or a tokenizer: "
            "StandardizedTransformer(model, tokenizer=...)."
        )
    return [list(tokenizer(text, verbose=False)["input_ids"]) for text in texts]


def _pad_id(tokenizer: Any, config: PretrainedConfig) -> int:
    for holder in (tokenizer, config):
        for name in ("pad_token_id", "eos_token_id"):
            token = getattr(holder, name, None)
            token = token[0] if isinstance(token, list) and token else token
            if isinstance(token, int) and 0 <= token < config.vocab_size:
                return token
    return 0


def _pad_left(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    empty = [i for i, row in enumerate(rows) if not row]
    if empty:
        which = "the prompt is empty" if len(rows) == 1 else f"row {empty[0]} of the batch is empty"
        raise InputError(f"{which}: the tokenizer gives it no token. Give at least one token in each row.")
    longest = max(map(len, rows))
    ids = [[pad] * (longest - len(row)) + row for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def _mask(mask: Any, ids: Tensor, past: int) -> Tensor:
    mask = torch.as_tensor(mask).detach().clone()
    if mask.ndim == 1:
        mask = mask[None]
    if mask.ndim == 2 and mask.shape[0] != ids.shape[0]:
        raise InputError(f"the mask has {mask.shape[0]} rows and the ids have {ids.shape[0]}; they must agree.")
    if mask.ndim == 2 and mask.shape[1] != past + ids.shape[1]:
        cached = f" after {past} in the cache" if past else ""
        raise InputError(f"the mask is {mask.shape[1]} long and the ids are {ids.shape[1]}{cached}; they must agree.")
    return mask


def _check_ids(ids: Tensor, limits: Limits, past: int) -> None:
    if ids.is_meta:
        return
    vocab, context = limits
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= vocab:
        raise InputError(
            f"id {low if low < 0 else high} is outside the embedding, which has {vocab} rows. "
            "Is the tokenizer this model's own?"
        )
    if context is not None and past + ids.shape[1] > context:
        raise InputError(
            f"the prompt is {past + ids.shape[1]} tokens long, and the model's context is {context}. "
            "Shorten it: the model has not seen positions beyond."
        )
