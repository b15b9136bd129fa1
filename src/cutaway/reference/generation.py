"""Writing on: run the prompt once, choose a token, run that token alone against the cache, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cutaway.errors import InputError
from cutaway.reference.cache import Cache
from cutaway.reference.config import PhiConfig
from cutaway.reference.inputs import as_ids, as_mask
from cutaway.reference.parts import Array, IntArray, softmax


class Predicts(Protocol):
    """What can be written on with: a model that says what comes next."""

    config: PhiConfig

    def next_token_logits(self, ids: IntArray, mask: IntArray, *, positions: IntArray, cache: Cache) -> Array:
        """The logits after each row's last token, `[batch vocab_size]`; appends to the cache."""
        ...


def generate(
    model: Predicts,
    ids: ArrayLike,
    max_new_tokens: int,
    *,
    mask: ArrayLike | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    cache: Cache | None = None,
) -> IntArray:
    """Continue every row of `ids`, greedily or by sampling.

    Args:
        model: the model.
        ids: `[batch seq]`, prompts padded on the left.
        max_new_tokens: how many tokens to add at most.
        mask: `[batch seq]`, 1 for tokens and 0 for padding. Positions are counted from each row's first token.
        temperature: 0 takes the likeliest token; otherwise the logits are divided by it and a token is drawn.
        top_k: draw from this many likeliest tokens.
        top_p: draw from the fewest likeliest tokens that hold this much probability together.
        seed: seed of the draws.
        eos_token_id: a row ends after one of these; the config's when left out, `()` for none.
        pad_token_id: what an ended row is filled with; the config's when left out, or else the first end token.
        cache: an empty cache to fill, for going on afterwards. It holds all but the last token returned.

    Returns:
        `[batch seq+new]`, prompts included; new is less than `max_new_tokens` where every row ended before.

    Raises:
        InputError: ids or mask that cannot be run, padding at the end of a row, or settings out of their range.
    """
    _check_settings(max_new_tokens, temperature, top_k, top_p)
    tokens = as_ids(ids, model.config.vocab_size)
    cache = Cache(tokens.shape[1] + max_new_tokens) if cache is None else cache
    if len(cache):
        raise InputError(f"the cache already holds {len(cache)} positions; give `Cache()`")
    real = as_mask(mask, tokens.shape[0], tokens.shape[1], None)
    if not real[:, -1].all():
        raise InputError("a row ends in padding, where its continuation would stand; pad on the left to generate")
    ends = _end_tokens(model.config.eos_token_id if eos_token_id is None else eos_token_id)
    fill = model.config.pad_token_id if pad_token_id is None else pad_token_id
    if fill is None:
        fill = int(ends[0]) if len(ends) else 0
    random = np.random.default_rng(seed)

    positions = np.maximum(real.cumsum(axis=1) - 1, 0)  # [batch seq]: each row's first token is at 0
    running = np.ones(len(tokens), bool)
    new = tokens
    for _ in range(max_new_tokens):
        logits = model.next_token_logits(new, real, positions=positions, cache=cache)
        chosen = np.where(running, sample(logits, random, temperature, top_k, top_p), fill)
        new = chosen[:, None]  # [batch] -> [batch 1]
        tokens = np.concatenate([tokens, new], axis=1)
        running &= ~np.isin(chosen, ends)
        if not running.any():
            break
        real = np.concatenate([real, np.ones_like(new)], axis=1)
        positions = positions[:, -1:] + 1
    return tokens


def sample(
    logits: Array,
    random: np.random.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> IntArray:
    """Draw one token a row, `[batch vocab_size]` to `[batch]`.

    `top_k` is that of Fan et al. 2018, arXiv:1805.04833; `top_p` is the nucleus of Holtzman et al. 2020,
    arXiv:1904.09751; applied in this order after the temperature, as transformers does.
    """
    if temperature == 0:
        return logits.argmax(axis=-1)
    scaled = logits.astype(np.float64) / temperature
    order = np.argsort(-scaled, axis=-1, kind="stable")  # likeliest first
    ranked = np.take_along_axis(scaled, order, axis=-1)
    if top_k is not None:
        ranked[:, top_k:] = -np.inf
    probabilities = softmax(ranked)
    if top_p is not None:
        before = probabilities.cumsum(axis=-1) - probabilities
        probabilities[before >= top_p] = 0
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
    edges = probabilities.cumsum(axis=-1)
    # The first rank whose cumulative probability passes the draw. Scaling the draw by the last edge, which rounding
    # leaves near 1 and not at it, keeps it inside.
    draws = random.random(len(logits))[:, None] * edges[:, -1:]
    rank = (edges <= draws).sum(axis=-1)
    return np.take_along_axis(order, rank[:, None], axis=-1)[:, 0]


def _end_tokens(given: int | Sequence[int] | None) -> IntArray:
    return np.atleast_1d(np.array(() if given is None else given, np.int64))


def _check_settings(max_new_tokens: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    if max_new_tokens < 0:
        raise InputError(f"max_new_tokens is {max_new_tokens}; it must be 0 or more")
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature is {temperature}; it must be 0 (greedy) or a positive number")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k is {top_k}; it must be 1 or more")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p is {top_p}; it must be above 0 and at most 1")
