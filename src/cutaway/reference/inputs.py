"""What a call is given, checked: token ids, the padding mask, positions; and who may attend to whom."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cutaway.errors import InputError, ShapeError
from cutaway.reference.cache import Cache
from cutaway.reference.parts import BoolArray, IntArray


def as_ids(ids: ArrayLike, vocab_size: int) -> IntArray:
    """Token ids as `[batch seq]`.

    Raises:
        InputError: not whole numbers, not two axes, empty, or outside the embedding.
    """
    try:
        array = np.asarray(ids)
    except ValueError:
        raise InputError("the rows of ids differ in length; pad them to one length and give a mask") from None
    if array.ndim != 2:
        raise InputError(f"ids have shape {list(array.shape)}; they are to be [batch seq], for one prompt [ids]")
    if array.size == 0:
        raise InputError(f"ids have shape {list(array.shape)}: there is no token to run; give at least one")
    if array.dtype.kind not in "iu":
        raise InputError(f"ids are of dtype {array.dtype}; token ids are whole numbers")
    outside = (array < 0) | (array >= vocab_size)
    if outside.any():
        row, column = (int(i) for i in np.argwhere(outside)[0])
        raise InputError(
            f"id {array[row, column]} (row {row}, position {column}) is outside the embedding of {vocab_size} rows; "
            f"ids run from 0 to {vocab_size - 1}. Was the text tokenized with this model's tokenizer?"
        )
    return array.astype(np.int64, copy=False)


def as_mask(mask: ArrayLike | None, batch: int, seq: int, cache: Cache | None) -> IntArray:
    """The mask of all positions so far, `[batch past+seq]`, ones for tokens and zeros for padding.

    Without a mask the call's tokens are all real, and a cache's positions are what they were when they were computed.

    Raises:
        InputError: another shape, or other values.
    """
    past = len(cache) if cache is not None else 0
    before = cache.mask if cache is not None else None
    if before is not None and len(before) != batch:
        raise InputError(f"the cache holds a batch of {len(before)} and this call has {batch}; start with `Cache()`")
    if mask is None:
        new = np.ones((batch, seq), np.int64)
        return new if before is None else np.concatenate([before, new], axis=1)
    array = np.asarray(mask)
    if array.shape != (batch, past + seq):
        so_far = f", the {past} positions in the cache and these {seq}" if past else ""
        raise InputError(f"the mask has shape {list(array.shape)}; it is to be [{batch} {past + seq}]{so_far}")
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise InputError("the mask is to hold 1 for tokens and 0 for padding, and nothing else")
    return array.astype(np.int64)


def as_positions(positions: ArrayLike | None, batch: int, seq: int, past: int) -> IntArray:
    """Rotary positions as `[batch seq]`, a batch of 1 standing for all; `past, past + 1, …` when none are given.

    The default does not look at padding, like transformers' Phi: positions matter through their differences alone, so
    that shifting a whole row changes nothing but rounding.

    Raises:
        ShapeError: another shape.
        InputError: not whole numbers, or negative.
    """
    if positions is None:
        return np.arange(past, past + seq)[None]
    array = np.asarray(positions)
    if array.shape not in ((seq,), (1, seq), (batch, seq)):
        raise ShapeError(f"positions have shape {list(array.shape)}; they are to be [{seq}] or [{batch} {seq}]")
    if array.dtype.kind not in "iu" or (array < 0).any():
        raise InputError("positions are to be whole numbers from 0")
    return array.reshape(-1, seq)  # [seq] -> [1 seq]


def blocked_pairs(seq: int, past: int, mask: IntArray | None = None) -> BoolArray | None:
    """Which keys each query may not attend to: later ones, and padding.

    Query i of this call stands at place `past + i` among the keys.

    Args:
        seq: queries in this call.
        past: keys before them.
        mask: `[batch past+seq]`; None where nothing is padding.

    Returns:
        `[1 1 query key]` or `[batch 1 query key]`, true where blocked; None where nothing is.
    """
    padding = None
    if mask is not None and not mask.all():
        padding = (mask == 0)[:, None, None]  # [batch key] -> [batch 1 1 key]
    if seq == 1:
        return padding
    later = np.arange(past + seq) > np.arange(past, past + seq)[:, None]  # [query key]
    later = later[None, None]  # [query key] -> [1 1 query key]
    return later if padding is None else later | padding
