"""How many tokens a cache has seen that holds states alone, as recurrences have them, and counts nothing.

It is counted here, call by call: a call is told from the one before by the state that it finds, which each call writes.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

UNKNOWN = -1
"""What stands for the number of tokens where it cannot be known."""

_seen: WeakKeyDictionary[Any, tuple[tuple[int, int], int, int]] = WeakKeyDictionary()
"""By cache: the state that the last call found, how many tokens had been seen then, and how many that call runs."""


def tokens_before(cache: Any, seq: int) -> int:
    """How many tokens a cache has seen when a call with `seq` tokens begins; `UNKNOWN` where it was used before anyone
    counted."""
    if not cache.has_previous_state():
        _seen[cache] = ((0, 0), 0, seq)
        return 0
    if cache not in _seen:
        return UNKNOWN
    found, before, run = _seen[cache]
    state = _state(cache)
    if state != found:
        before, run = before + run, seq
        _seen[cache] = (state, before, run)
    return before


def _state(cache: Any) -> tuple[int, int]:
    """What tells one state of a cache from another: the last layer's tensor, and how often it was written."""
    for layer in reversed(cache.layers):
        for tensor in getattr(layer, "recurrent_states", {}).values():
            if isinstance(tensor, Tensor):
                return id(tensor), 0 if tensor.is_inference() else tensor._version
    return 0, 0
