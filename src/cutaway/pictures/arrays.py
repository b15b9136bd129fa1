"""What a picture is given, checked before anything is drawn.

Arrays are NumPy arrays, nested lists, or tensors: anything with `.detach()` is taken for a torch tensor of any dtype,
bfloat16 included, on any device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import InputError, ShapeError
from cutaway.pictures.labels import Token

Array = NDArray[np.floating[Any]]
ArrayLike = Any
"""A NumPy array, a torch tensor, a number, or a (nested) sequence of these."""

# A softmax in bfloat16 may come out a step above 1.
_ABOVE_ONE = 1e-2

T = TypeVar("T")


def as_array(values: ArrayLike, what: str) -> Array:
    """The values as a NumPy array of float32 or float64.

    Raises:
        InputError: they are not numbers, are complex, or are on torch's meta device.
        ShapeError: they are a sequence of arrays of different shapes.
    """
    if hasattr(values, "detach"):
        return _from_tensor(values, what)
    if isinstance(values, (list, tuple)):
        items = cast("Sequence[Any]", values)
        if any(hasattr(item, "detach") or isinstance(item, (np.ndarray, list, tuple)) for item in items):
            return _stacked([as_array(item, what) for item in items], what)
    array = np.asarray(values)
    if array.dtype.char in "fd":
        return array
    try:
        if array.dtype.kind in "cOSUM":
            raise TypeError
        return array.astype(np.float64 if array.dtype.kind in "iu" else np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be real numbers, and has dtype {array.dtype}") from None


def _from_tensor(values: Any, what: str) -> Array:
    if getattr(values, "is_meta", False):
        raise InputError(f"{what} is on the meta device and has no numbers in it; run a model that has its weights")
    if values.is_complex():
        raise InputError(f"{what} must be real numbers, and has dtype {values.dtype}")
    return values.detach().float().cpu().numpy()


def _stacked(arrays: list[Array], what: str) -> Array:
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        shown = ", ".join(str(shape) for shape in sorted(shapes))
        raise ShapeError(f"{what} is a sequence of arrays of different shapes: {shown}; give arrays of one shape")
    return np.stack(arrays)


def with_axes(values: ArrayLike, axes: tuple[str, ...], what: str, *, batched: bool = False) -> Array:
    """The values as an array with these axes, none of them of length 0, every entry finite.

    Where `batched`, a batch axis of length 1 in front is dropped, since that is how a model's values come.

    Raises:
        ShapeError: the rank is another, or the batch axis is longer than 1.
        InputError: an axis has length 0, or an entry is not finite.
    """
    array = as_array(values, what)
    expected = f"[{' '.join(axes)}]"
    if batched and array.ndim == len(axes) + 1:
        if array.shape[0] != 1:
            raise ShapeError(
                f"{what} has shape {array.shape}: {array.shape[0]} rows of a batch, where a picture shows one of "
                f"layout {expected}; pick one, as in `values[0]`"
            )
        array = array[0]
    if array.ndim != len(axes):
        raise ShapeError(f"{what} has shape {array.shape}, and its layout is {expected}: {len(axes)} axes")
    for axis, length in zip(axes, array.shape, strict=True):
        if not length:
            raise InputError(f"{what} has shape {array.shape}: nothing along `{axis}`, so there is nothing to draw")
    return finite(array, what)


def finite(array: Array, what: str) -> Array:
    """The array itself.

    Raises:
        InputError: an entry is not finite; the message says which and how many.
    """
    wrong = ~np.isfinite(array)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InputError(
            f"{what} has {int(wrong.sum())} entries that are not finite, the first at {first}: {array[first]}; "
            "leave out the positions of padding, and if a model in float16 gave them, load it in bfloat16 or float32"
        )
    return array


def probabilities(array: Array, what: str) -> Array:
    """The array, with rounding past 0 and 1 taken off.

    Raises:
        InputError: an entry is outside 0 to 1.
    """
    low, high = float(array.min()), float(array.max())
    if low < -_ABOVE_ONE or high > 1 + _ABOVE_ONE:
        raise InputError(
            f"{what} must be probabilities, from 0 to 1, and runs from {low:.4g} to {high:.4g}; "
            "scores and logits become probabilities by a softmax"
        )
    return array if low >= 0 and high <= 1 else np.clip(array, 0, 1)


def one_each(items: Sequence[T], count: int, what: str, of: str) -> list[T]:
    """The items as a list, one for each of `count`.

    Raises:
        ShapeError: there are more or fewer.
    """
    given = list(items)
    if len(given) != count:
        raise ShapeError(f"{what}: {len(given)} given for {count} {of}; give one for each")
    return given


def tokens_for(tokens: Sequence[Token], count: int, of: str) -> list[Token]:
    """The tokens as a list, one for each of `count` positions.

    Raises:
        InputError: they are one string rather than a sequence, or hold something that is neither text nor bytes.
        ShapeError: there are more or fewer.
    """
    if isinstance(tokens, (str, bytes)):
        raise InputError(f"tokens must be a sequence of tokens, one a position, and is one {type(tokens).__name__}")
    given = one_each(tokens, count, "tokens", of)
    for i, token in enumerate(given):
        if not isinstance(token, (str, bytes)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"token {i} is {token!r}, and a token is given as its text (str or bytes); decode the ids first"
            )
    return given
