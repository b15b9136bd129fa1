"""Attention weights made small enough to travel in a page.

A weight is stored in one byte, as its square root in 256 steps: a weight of 0.002, which among 512 tokens is an average
one, is told apart from 0. Each head is deflated and written in base64 by itself, and the page unpacks the head it
shows. Where all of it would still be too large, the lightest weights are stored as 0, from a floor that is as low as
the size allows; the page says so.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import InputError
from cutaway.pictures.arrays import Array

FLOORS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_SAMPLE = 16


@dataclass(frozen=True)
class Packed:
    """The heads of every layer, as the page reads them, and the floor below which weights were left out."""

    layers: list[list[str]]
    floor: float


def pack(weights: Array, most_bytes: int) -> Packed:
    """The heads of `[num_layers num_heads query key]`, in at most `most_bytes` characters.

    Raises:
        InputError: they do not fit, even without every weight below the highest floor.
    """
    num_layers, num_heads = weights.shape[:2]
    for floor in FLOORS:
        # A sample of heads is enough to see that a floor is hopeless.
        if _estimate(weights, floor) > 1.25 * most_bytes:
            continue
        layers = [[_pack_head(weights[i, j], floor) for j in range(num_heads)] for i in range(num_layers)]
        if sum(len(head) for layer in layers for head in layer) <= most_bytes:
            return Packed(layers, floor)
    raise InputError(
        f"the patterns of {num_layers} layers of {num_heads} heads over {weights.shape[-1]} tokens do not fit in "
        f"{most_bytes:,} bytes; give fewer layers or a shorter prompt, or raise `most_bytes`"
    )


def quantised(weights: Array) -> NDArray[np.uint8]:
    """Weights in bytes: 255 times the square root."""
    return np.rint(np.sqrt(weights) * 255).astype(np.uint8)


def _estimate(weights: Array, floor: float) -> float:
    heads = weights.reshape(-1, *weights.shape[2:])
    chosen = np.unique(np.linspace(0, len(heads) - 1, min(_SAMPLE, len(heads))).astype(int))
    return len(heads) * float(np.mean([len(_pack_head(heads[i], floor)) for i in chosen]))


def _pack_head(weights: Array, floor: float) -> str:
    kept = np.where(weights < floor, 0, weights)
    return base64.b64encode(zlib.compress(quantised(kept).tobytes(), 6)).decode("ascii")
