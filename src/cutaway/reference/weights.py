"""Where a module's weights come from: a module asks for each by name and shape, and a source gives it.

So one constructor serves a random model and a loaded one, and a loaded model is never filled with random numbers first.
Names are the standard ones of `cutaway.vocabulary` (`o_proj`, `down_proj`, `norm`) with Phi's own where the vocabulary
has none (`fc1`, `q_layernorm`, `k_layernorm`).
"""

from __future__ import annotations

import zlib
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from cutaway.reference.parts import Array, LayerNorm, Linear


class Weights(Protocol):
    """A source of weights."""

    def __call__(self, name: str, shape: tuple[int, ...]) -> Array:
        """The weight of this name, in this shape."""
        ...


class RandomWeights:
    """Normal weights, norms that start as the plain norm, and biases that are zero unless `bias_std` says otherwise.

    Each weight depends on the seed and on its own name, and on nothing drawn before: two modules that differ in one
    choice share all other weights.

    Args:
        seed: the seed; None draws one.
        std: standard deviation of the weights.
        bias_std: standard deviation of the biases.
        dtype: the dtype of all weights.
    """

    def __init__(
        self, seed: int | None, std: float = 0.02, *, bias_std: float = 0.0, dtype: DTypeLike = np.float64
    ) -> None:
        self.seed = int(np.random.default_rng().integers(2**63)) if seed is None else seed
        self.std = std
        self.bias_std = bias_std
        self.dtype = dtype

    def __call__(self, name: str, shape: tuple[int, ...]) -> Array:
        """The weight of this name, in this shape."""
        is_bias = name.endswith("bias")
        if "norm" in name:
            return np.full(shape, 0.0 if is_bias else 1.0, self.dtype)
        generator = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        return (generator.standard_normal(shape) * (self.bias_std if is_bias else self.std)).astype(self.dtype)


def under(weights: Weights, prefix: str) -> Weights:
    """The same source, every name asked of it preceded by `prefix` and a dot."""

    def source(name: str, shape: tuple[int, ...]) -> Array:
        return weights(f"{prefix}.{name}", shape)

    return source


def linear(weights: Weights, name: str, in_features: int, out_features: int, bias: bool = True) -> Linear:
    """The linear map of this name."""
    weight = weights(f"{name}.weight", (out_features, in_features))
    return Linear(weight, weights(f"{name}.bias", (out_features,)) if bias else None)


def layer_norm(weights: Weights, name: str, size: int, eps: float) -> LayerNorm:
    """The layer norm of this name."""
    return LayerNorm(weights(f"{name}.weight", (size,)), weights(f"{name}.bias", (size,)), eps)
