"""Steering: a vector added to the stream, as a function of it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor

from cutaway.edits.function_edit import ValueFunction
from cutaway.errors import InputError, ShapeError


def steering(layers: Any, vector: Any, factor: Any, *, num_layers: int, hidden_size: int) -> dict[int, ValueFunction]:
    """For each layer, the function that adds its vector to a stream.

    Args:
        layers: a layer's number, or several; negative ones count from the end. One named twice counts once.
        vector: `[hidden_size]` for all of them, or `[layers hidden_size]`, one for each in their order.
        factor: what it is multiplied by.

    Raises:
        InputError: these are no numbers and no tensor, no layer is named, or one twice with a vector each.
        IndexError: there is no such layer.
        ShapeError: the vector is neither one nor one a layer.
    """
    if not isinstance(vector, Tensor):
        raise InputError(f"a steering vector is a tensor; it was given a {type(vector).__name__}.")
    numbers = _layers(layers, num_layers)
    if isinstance(factor, (str, bytes)) or not hasattr(factor, "__float__"):
        raise InputError(f"layers and factor are numbers; they were given {layers!r} and {factor!r}.")
    if vector.shape == (hidden_size,):
        return {number: adds(vector, float(factor)) for number in numbers}
    twice = [number for number in numbers if numbers.count(number) > 1]
    if vector.shape == (len(numbers), hidden_size):
        if twice:
            raise InputError(f"layer {twice[0]} is named twice in {layers!r}, with a vector each; add these yourself.")
        return {number: adds(own, float(factor)) for number, own in zip(numbers, vector, strict=True)}
    raise ShapeError(
        f"a steering vector is [hidden_size], [{hidden_size}] here, or one for each layer, [{len(numbers)}, "
        f"{hidden_size}] for {len(numbers)}; it was given {list(vector.shape)}. For another vector at each position, "
        "or in each row, give a function: `model.hooks({'layers.1.layer_output': lambda stream: stream + vectors})`."
    )


def _layers(layers: Any, num_layers: int) -> list[int]:
    several = isinstance(layers, (Sequence, set, Tensor)) and not isinstance(layers, str)
    given: Any = layers if several else [layers]
    numbers: list[int] = []
    for layer in given:
        try:
            numbers.append(range(num_layers)[index(layer)])
        except TypeError:
            raise InputError(f"layers and factor are numbers; the layers given are {layers!r}.") from None
        except IndexError:
            raise IndexError(f"there is no layer {layer}: there are {num_layers}.") from None
    if not numbers:
        raise InputError("no layer was given to steer.")
    return numbers


def adds(vector: Tensor, factor: float) -> ValueFunction:
    """A function that adds `factor * vector` to a value, in the value's own dtype and on its device."""

    def add(value: Tensor) -> Tensor:
        return value + (factor * vector.to(value.device, torch.promote_types(vector.dtype, value.dtype))).to(
            value.dtype
        )

    return add
