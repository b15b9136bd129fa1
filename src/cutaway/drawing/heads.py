"""Which head a picture shows: the one asked for, or one that is worth looking at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutaway.errors import InputError
from cutaway.model import StandardizedTransformer


class Head(NamedTuple):
    """A head's place."""

    layer: int
    head: int


def patterns_of(model: StandardizedTransformer, prompt: str) -> list[Tensor]:
    """The attention patterns of every layer, `[1 num_heads query key]` each."""
    return list(model.read(prompt, "attention_probabilities").values())


def telling_head(patterns: Sequence[Tensor]) -> Head:
    """The head that looks most at one other token: neither at itself nor at position 0, where heads at rest look.

    Args:
        patterns: one a layer, `[1 num_heads query key]`; layers without attention may be left out.
    """
    best, found = -1.0, Head(0, 0)
    for layer, pattern in enumerate(patterns):
        elsewhere = pattern[0].float().tril(-1)  # [num_heads query key]
        elsewhere[..., 0] = 0
        for head, score in enumerate(elsewhere.amax(-1).mean(-1).tolist()):
            if score > best:
                best, found = score, Head(layer, head)
    return found


def chosen(model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None) -> Head:
    """The head asked for; what is left open is filled in with the most telling one.

    Raises:
        InputError: there is no such layer or head.
    """
    sizes = model.sizes
    if layer is not None:
        layer = counted(layer, sizes["num_layers"], "layer")
    if head is not None:
        head = counted(head, sizes["num_heads"], "head")
    if layer is not None and head is not None:
        return Head(layer, head)
    patterns = patterns_of(model, prompt)
    if layer is not None:
        return Head(layer, telling_head([patterns[layer]]).head)
    if head is not None:
        return Head(telling_head([torch.as_tensor(pattern)[:, head : head + 1] for pattern in patterns]).layer, head)
    return telling_head(patterns)


def counted(index: int, count: int, what: str) -> int:
    """An index counted from the start; negative ones are from the end.

    Raises:
        InputError: it is outside.
    """
    if not -count <= index < count:
        raise InputError(f"there is no {what} {index}: there are {count}, from 0 to {count - 1}.")
    return index % count
