"""What a model is called with, from whatever a prompt is given as.

A prompt is a string, several strings, ids, several rows of ids, a tensor of either rank, or a tokenizer's output with
its mask; in a mapping, embeddings may stand in the place of ids. Rows of different lengths are padded on the left, so
that every row's last token stands at the end. What the tokenizer adds is what transformers' tokenizer adds, and nothing
else. The caller's tensors are copied: an edit of `input_ids` in a trace leaves them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig

from cutaway.errors import InputError
from cutaway.subject.limits import Limits, check_ids, check_length
from cutaway.subject.state_caches import tokens_before

Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | Tensor | Mapping[str, Any]


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

    A mapping may hold `inputs_embeds`, `[batch seq hidden_size]`, in the place of ids.

    With `positions_from_mask`, rows that are padded on the left get `position_ids` too, unless the mapping holds them.
    With `past` positions in a cache, the mask is `[batch past+seq]`: that of all positions so far. Ids of equal length
    that come without a mask have one of ones, or with `mask_if_untold=False` none, so that transformers decides.

    Raises:
        InputError: the prompt is empty, mixes kinds, needs a tokenizer that the model lacks, its ids are outside the
            embedding or longer than a table of positions, or embeddings are not of the model's width and dtype.

    Warns:
        LongPromptWarning: the prompt is longer than the context of a model with a rotary.
    """
    rest: dict[str, Any] = {}
    name = "input_ids"
    if isinstance(prompt, Mapping):
        rest = {str(name): value for name, value in prompt.items() if value is not None or name not in _PROMPT}
        if rest.keys().isdisjoint(_PROMPT):
            raise InputError(
                f"a mapping must hold `input_ids`, or `inputs_embeds`; it holds {', '.join(rest) or 'nothing'}."
            )
        name = next(name for name in _PROMPT if name in rest)
        prompt = rest.pop(name)
        given = rest.pop("attention_mask", None)
        if given is not None and attention_mask is not None:
            raise InputError("`attention_mask` is given twice, in the prompt and beside it. Give it once.")
        attention_mask = given if attention_mask is None else attention_mask
    if name == "inputs_embeds":
        tokens, padding = _embeddings(prompt, limits), None
    else:
        tokens, padding = _rows(prompt, tokenizer, config)
        check_ids(tokens, limits)
    check_length(past + tokens.shape[1], limits)
    masks: dict[str, Tensor] = {}
    if attention_mask is not None:
        masks["attention_mask"] = _mask(attention_mask, tokens, past).to(device)
    elif padding is not None or mask_if_untold:
        padding = tokens.new_ones(tokens.shape[:2], dtype=torch.long) if padding is None else padding
        masks["attention_mask"] = torch.cat([padding.new_ones(len(padding), past), padding], dim=1).to(device)
    rest = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in rest.items()}
    if positions_from_mask and masks and "position_ids" not in rest:
        rest.update(_positions(masks["attention_mask"], tokens.shape[1], device))
    return {name: tokens.to(device), **masks, **rest}


_PROMPT = ("input_ids", "inputs_embeds")
"""Under which names a mapping holds a prompt; where it holds both, ids are the prompt."""


def cached_positions(forward: Mapping[str, Any]) -> int:
    """How many positions the cache holds that is among a forward's arguments; `UNKNOWN` where that cannot be known."""
    cache: Any = forward.get("cache")
    cache = forward.get("past_key_values") if cache is None else cache
    counts, tokens = hasattr(cache, "get_seq_length"), forward.get("input_ids")
    try:
        return int(cache.get_seq_length()) if counts else _more_than_are_run(forward)
    except ValueError:  # a cache of states alone counts no tokens
        if not isinstance(tokens, Tensor):
            return 0
        return _more_than_are_run(forward) or tokens_before(cache, tokens.shape[1])


def _more_than_are_run(forward: Mapping[str, Any]) -> int:
    """By how many tokens the mask is wider than the tokens that are run: it is of all so far, also where a model keeps
    what it has seen in an argument of its own, as RWKV does, or in a cache that does not count."""
    mask, tokens = forward.get("attention_mask"), forward.get("input_ids")
    if not isinstance(tokens, Tensor) or not isinstance(mask, Tensor) or mask.ndim != 2:
        return 0
    return max(mask.shape[1] - tokens.shape[1], 0)


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
        prompt = _of_array(prompt)
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


def _of_array(prompt: Any) -> Any:
    """What NumPy's array holds: strings, numbers as a tensor, or of any objects a list of them."""
    kind = prompt.dtype.kind
    if kind not in "UOST":
        return torch.as_tensor(prompt)
    if kind == "S":
        raise InputError("a prompt is text; the array holds bytes. Decode them: `numpy.char.decode(prompt)`.")
    if kind != "O" and prompt.ndim > 1:
        raise InputError(
            f"strings are given in one row, [batch]; the array of strings is of shape {list(prompt.shape)}."
        )
    return prompt.tolist()


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


def _embeddings(embeddings: Any, limits: Limits) -> Tensor:
    """Embeddings `[batch seq hidden_size]` as they were given; a row of them as a batch of one."""
    if not isinstance(embeddings, Tensor) or embeddings.ndim not in (2, 3) or not embeddings.is_floating_point():
        what = f"a {type(embeddings).__name__}"
        if isinstance(embeddings, Tensor):
            what = f"{embeddings.dtype} of shape {list(embeddings.shape)}"
        raise InputError(f"`inputs_embeds` are numbers, in a tensor of shape [batch, seq, hidden_size]; it was {what}.")
    embeddings = embeddings[None] if embeddings.ndim == 2 else embeddings
    if embeddings.numel() == 0:
        raise InputError("the prompt is empty: give at least one embedding in each row.")
    if limits.hidden_size is not None and embeddings.shape[2] != limits.hidden_size:
        raise InputError(
            f"`inputs_embeds` are {embeddings.shape[2]} wide, and this model's embeddings {limits.hidden_size}; the "
            f"tensor is of shape {list(embeddings.shape)}."
        )
    if limits.dtype not in (None, embeddings.dtype) and not torch.is_autocast_enabled(embeddings.device.type):
        raise InputError(
            f"`inputs_embeds` are {embeddings.dtype}, and this model's embeddings {limits.dtype}. Convert them: "
            f"`.to({limits.dtype})`."
        )
    return embeddings


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
