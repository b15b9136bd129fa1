"""How far two arrays of one value are apart, and how far they may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutaway.reference.parts import Array, BoolArray
from cutaway.vocabulary.layouts import Layout


@dataclass(frozen=True)
class Difference:
    """The largest difference of a value from what it was expected to be.

    Attributes:
        absolute: the largest difference of an entry.
        relative: the largest difference of an entry as a share of the largest entry at its own position, so that one
            position with huge entries, as position 0 often is, does not hide what the others do.
        place: where the relative one is, an index along each axis of the layout.
    """

    absolute: float
    relative: float
    place: tuple[int, ...]

    def within(self, tolerance: float) -> bool:
        """Whether the relative difference is at most this."""
        return self.relative <= tolerance


NONE = Difference(0.0, 0.0, ())
"""What lies between two arrays that have no entry at a real position."""


def difference(
    found: Array,
    expected: Array,
    layout: Layout,
    real: BoolArray,
    blocked: BoolArray | None = None,
    lowest: float = -np.inf,
) -> Difference:
    """The difference of two arrays of one layout, at positions that are not padding.

    Args:
        found: what the model has.
        expected: what it was expected to have.
        layout: the meaning of the axes.
        real: `[batch seq]`, true where a token is real.
        blocked: for scores, true for pairs that may not be attended to, in a shape that broadcasts. There `found` only
            has to be out of the softmax's reach: minus infinity, or near the lowest number.
        lowest: the lowest number of the dtype in which the model masks.

    Returns:
        The difference; infinite where shapes differ, or where one is finite and the other is not.
    """
    if found.shape != expected.shape:
        return Difference(np.inf, np.inf, ())
    if blocked is not None:
        agreed = np.broadcast_to(blocked, expected.shape) & (found <= _OUT_OF_REACH * lowest)
        found, expected = np.where(agreed, 0, found), np.where(agreed, 0, expected)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(found - expected)
    # An overflow or a NaN is a difference wherever the other is a number, and none where both are the same.
    apart = np.where(np.isnan(apart), np.where(_same_outside(found, expected), 0.0, np.inf), apart)
    apart = np.where(_along_positions(real, layout), apart, 0.0)
    if not apart.size:
        return NONE
    others = _other_axes(layout)
    scale = np.where(np.isfinite(expected), np.abs(expected), 0).max(axis=others, keepdims=True)
    share = np.divide(apart, scale, out=np.where(apart > 0, np.inf, 0.0), where=scale > 0)
    place = np.unravel_index(int(share.argmax()), share.shape)
    return Difference(float(apart.max()), float(share.max()), tuple(int(i) for i in place))


_OUT_OF_REACH = 0.4
"""A mask is often added to the score, so that a blocked score is near the lowest number and not at it."""


def _same_outside(found: Array, expected: Array) -> BoolArray:
    return (np.isnan(found) & np.isnan(expected)) | (found == expected)


def _position_axis(layout: Layout) -> int | None:
    return next((i for i, axis in enumerate(layout.axes) if axis in ("seq", "query")), None)


def _other_axes(layout: Layout) -> tuple[int, ...]:
    kept = (0, _position_axis(layout))
    return tuple(i for i in range(len(layout.axes)) if i not in kept)


def _along_positions(real: BoolArray, layout: Layout) -> BoolArray:
    """`[batch seq]` as an array that broadcasts against the layout; all true for a layout without positions."""
    axis = _position_axis(layout)
    if axis is None:
        return np.ones((1,) * len(layout.axes), bool)
    shape = [1] * len(layout.axes)
    shape[0], shape[axis] = real.shape
    return real.reshape(shape)
