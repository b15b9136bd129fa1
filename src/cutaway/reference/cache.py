"""The keys and values of positions already computed, so that a new token costs one position of work.

Only attention looks back, and it looks at keys and values alone; everything else of a past position is never needed
again. Keys are kept after the rotary: a key's angle is that of its own position and never changes.
"""

from __future__ import annotations

import numpy as np

from cutaway.errors import InputError
from cutaway.reference.parts import Array, IntArray


class Cache:
    """Keys and values of every layer for all positions so far. Give an empty one to a model's call, and then again.

    Room is doubled when it runs out, so that a new position costs no copy of the old ones but once in a while.

    Args:
        capacity: positions to make room for at first.

    Attributes:
        length: how many positions the cache holds.
        mask: `[batch length]` of ones for real tokens and zeros for padding; None while the cache is empty.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.length = 0
        self.mask: IntArray | None = None
        self._capacity = max(1, capacity)
        self._buffers: dict[int, tuple[Array, Array]] = {}

    def __len__(self) -> int:
        return self.length

    def extend(self, layer: int, keys: Array, values: Array) -> tuple[Array, Array]:
        """Write the new positions of one layer behind the old ones, and give all of them.

        Args:
            layer: the layer's number.
            keys: `[batch num_kv_heads seq head_dim]`, the new positions.
            values: likewise.

        Returns:
            Keys and values `[batch num_kv_heads length+seq head_dim]`, as views into the cache.

        Raises:
            InputError: the cache was filled by a model of another shape or with another batch.
        """
        end = self.length + keys.shape[2]
        kept_keys, kept_values = self._room(layer, keys, end)
        kept_keys[:, :, self.length : end] = keys
        kept_values[:, :, self.length : end] = values
        return kept_keys[:, :, :end], kept_values[:, :, :end]

    def advance(self, mask: IntArray) -> None:
        """Count the positions that every layer has now written. `mask` is `[batch length+seq]`."""
        self.mask = mask
        self.length = mask.shape[1]

    def _room(self, layer: int, like: Array, needed: int) -> tuple[Array, Array]:
        batch, heads, _, width = like.shape
        old = self._buffers.get(layer)
        if old is None and self.length:
            raise InputError(f"the cache holds no layer {layer}: it was filled by another model; start with `Cache()`")
        if old is not None and (old[0].shape[0], old[0].shape[1], old[0].shape[3]) != (batch, heads, width):
            if self.length:
                raise InputError(
                    f"the cache holds [batch heads head_dim] {[old[0].shape[i] for i in (0, 1, 3)]} "
                    f"and this call has {[batch, heads, width]}; start with `Cache()`"
                )
            old = None
        if old is not None and old[0].shape[2] >= needed:
            return old
        capacity = max(self._capacity, needed if old is None else max(needed, 2 * old[0].shape[2]))
        new = (
            np.empty((batch, heads, capacity, width), like.dtype),
            np.empty((batch, heads, capacity, width), like.dtype),
        )
        if old is not None:
            for fresh, before in zip(new, old, strict=True):
                fresh[:, :, : self.length] = before[:, :, : self.length]
        self._buffers[layer] = new
        return new
