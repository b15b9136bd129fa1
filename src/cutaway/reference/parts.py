"""The small parts that every block is made of: a linear map, a layer norm, the softmax and the activation.

Arrays that a function has just made are worked on in place: at 2,560 dimensions and a few hundred positions an array
is megabytes, and writing a fresh one for each step costs more than the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cutaway.errors import InputError

Array = NDArray[np.floating[Any]]
"""An array of real numbers."""

IntArray = NDArray[np.integer[Any]]
"""An array of whole numbers: token ids, positions, masks."""

BoolArray = NDArray[np.bool_]

_CHUNK = 1 << 15
"""Elements of the activation computed at a time: 128 KiB in float32, which stays in a core's cache."""


def float_dtype(name: str, dtype: DTypeLike) -> np.dtype[np.floating[Any]]:
    """The dtype given, if it is one that the reference computes in; `name` is the argument's, for the message."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"{name} is {found}; the reference computes in float32 or float64")
    return found


class Linear:
    """`y = x Wᵀ + b`, with the weight stored `[out in]` as torch stores it.

    Attributes:
        weight: `[out in]`.
        bias: `[out]`, or None.
    """

    def __init__(self, weight: Array, bias: Array | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Array) -> Array:
        """`[... in]` to `[... out]`, always a new array."""
        out_features, in_features = self.weight.shape
        rows = x.reshape(-1, in_features)  # [... in] -> [rows in]: one matrix product, however many leading axes
        y = rows @ self.weight.T
        if self.bias is not None:
            y += self.bias
        return y.reshape(*x.shape[:-1], out_features)  # [rows out] -> [... out]


class LayerNorm:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` over the last axis (Ba et al. 2016, arXiv:1607.06450).

    The variance is the biased one, divided by the number of entries, as in `torch.nn.LayerNorm`.

    Attributes:
        weight: `[size]`.
        bias: `[size]`.
        eps: added to the variance; 1e-5 on every Phi checkpoint.
    """

    def __init__(self, weight: Array, bias: Array, eps: float) -> None:
        self.weight = weight
        self.bias = bias
        self.eps = eps

    def __call__(self, x: Array) -> Array:
        """`[... size]` to the same shape, always a new array."""
        y = x - x.mean(axis=-1, keepdims=True)
        variance = np.vecdot(y, y)[..., None] / x.shape[-1]  # [... 1]
        y /= np.sqrt(variance + self.eps)
        y *= self.weight
        y += self.bias
        return y


def softmax(scores: Array, out: Array | None = None) -> Array:
    """`exp(s) / sum(exp(s))` over the last axis, with the largest score taken off first so that nothing overflows.

    A row that is -inf throughout has no defined softmax; it comes out uniform, which is what a row filled with the
    dtype's minimum comes out as.

    Args:
        scores: `[... key]`.
        out: where to write; `scores` itself is allowed.

    Returns:
        `[... key]`; every row sums to 1.
    """
    largest = scores.max(axis=-1, keepdims=True)
    empty = np.isneginf(largest)
    if empty.any():
        scores = np.where(empty, scores.dtype.type(0), scores)
        largest = np.where(empty, scores.dtype.type(0), largest)
    weights: Array = np.subtract(scores, largest, out=out)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def gelu_new(x: Array, out: Array | None = None) -> Array:
    """`0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`, the tanh form of the GELU.

    Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2; `NewGELUActivation` in transformers' `activations.py`.

    Args:
        x: any shape.
        out: where to write; `x` itself is allowed.
    """
    if out is None or not out.flags.c_contiguous:
        fresh = gelu_new(x, np.empty(x.shape, x.dtype))
        if out is None:
            return fresh
        out[...] = fresh
        return out
    source, target = x.reshape(-1), out.reshape(-1)
    scale = math.sqrt(2 / math.pi)
    for start in range(0, source.size, _CHUNK):
        piece = source[start : start + _CHUNK]
        inner = np.square(piece)
        inner *= 0.044715 * scale
        inner += scale
        inner *= piece
        np.tanh(inner, out=inner)
        inner += 1
        inner *= 0.5
        np.multiply(piece, inner, out=target[start : start + _CHUNK])
    return out
