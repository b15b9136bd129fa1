"""Steering: a vector added to the stream, as a function of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from cutaway.edits.function_edit import ValueFunction
from cutaway.errors import InputError, ShapeError, UnknownLayerError
from cutaway.vocabulary.numbers import a_factor, whole_number


def steering(places: Sequence[str], vector: Any, factor: Any, *, hidden_size: int) -> dict[str, ValueFunction]:
    """For the path of each stream, the function that adds its vector to it.

    Args:
        places: the paths. One named twice counts once.
        vector: `[hidden_size]` for all of them, or `[places hidden_size]`, one for each in their order.
        factor: what it is multiplied by, a number or a tensor of one.

    Raises:
        InputError: these are no number and no tensor, or a place is named twice with a vector each.
        ShapeError: the vector is neither one nor one a place.
    """
    if not isinstance(vector, Tensor):
        raise InputError(f"a steering vector is a tensor; it was given a {type(vector).__name__}.")
    factor = a_factor(factor)
    if vector.shape == (hidden_size,):
        return {place: adds(vector, factor) for place in places}
    if vector.shape == (len(places), hidden_size):
        twice = [place for place in places if places.count(place) > 1]
        if twice:
            raise InputError(f"`{twice[0]}` is named twice, with a vector each; add these yourself.")
        return {place: adds(own, factor) for place, own in zip(places, vector, strict=True)}
    raise ShapeError(
        f"a steering vector is [hidden_size], [{hidden_size}] here, or one for each layer, [{len(places)}, "
        f"{hidden_size}] for {len(places)}; it was given {list(vector.shape)}. For another vector at each position, "
        "or in each row, give a function: `model.hooks({'layers.1.layer_output': lambda stream: stream + vectors})`."
    )


def layer_numbers(layers: Any, num_layers: int) -> list[int]:
    """The numbers of layers that are given by number, several, or a slice; negative ones count from the end.

    Raises:
        InputError: these are no numbers, or there are none.
        UnknownLayerError: there is no such layer.
    """
    there = range(num_layers)
    if isinstance(layers, str):
        raise InputError(f"layers and factor are numbers; the layers given are {layers!r}.")
    if isinstance(layers, slice):
        layers = there[layers]
    several = isinstance(layers, Iterable) and getattr(layers, "ndim", 1) != 0
    numbers: list[int] = []
    for layer in layers if several else [layers]:
        number = whole_number(layer, "a layer")
        if not -num_layers <= number < num_layers:
            raise UnknownLayerError(f"there is no layer {number}: there are {num_layers}.")
        numbers.append(there[number])
    if not numbers:
        raise InputError("no layer was given to steer.")
    return numbers


def adds(vector: Tensor, factor: float | Tensor) -> ValueFunction:
    """A function that adds `factor * vector` to a value, in the value's own dtype and on its device."""

    def add(value: Tensor) -> Tensor:
        return value + (factor * vector.to(value.device, torch.promote_types(vector.dtype, value.dtype))).to(
            value.dtype
        )

    return add
