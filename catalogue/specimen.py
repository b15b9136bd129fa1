"""A model under examination: a tiny random one, opened, with the inputs that every oracle uses."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from catalogue.raw import OF_SOFTMAX, Spot, once, result_of, spot_of
from cutaway import StandardizedTransformer
from cutaway.vocabulary import ValuePath

IDS = torch.tensor([[5, 9, 33, 12, 61, 17], [7, 7, 51, 40, 8, 93], [50, 114, 12, 29, 6, 11]])
"""Three rows of six, no token of them a special one."""

PADDED = {
    "input_ids": torch.tensor([[0, 0, 33, 12, 61, 17], [7, 7, 51, 40, 8, 93], [0, 114, 12, 29, 6, 11]]),
    "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]]),
}
"""The same, padded on the left: four, six and five tokens."""


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal bit for bit, in shape and dtype too; a NaN equals a NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def told(error: BaseException) -> str:
    """An error in a line: what it is, and the first lines of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:300] or 'no message'}"


@dataclass
class Specimen:
    """The plain model and the opened one, which are of the same weights."""

    hf: PreTrainedModel
    model: StandardizedTransformer

    @property
    def subject(self) -> Any:
        """What Cutaway knows of the model."""
        return self.model._subject

    @property
    def kernel(self) -> str:
        """The attention implementation of the load."""
        return str(self.hf.config._attn_implementation)

    @cached_property
    def paths(self) -> list[ValuePath]:
        """Every value that is listed, in the order of a pass."""
        return list(self.subject.value_paths)

    @cached_property
    def kinds(self) -> list[int]:
        """The first layer of each kind."""
        layers = range(self.subject.sizes["num_layers"])
        first = {id(self.subject.family_at(layer)): layer for layer in reversed(layers)}
        return sorted(first.values())

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """What the model is called with where Cutaway is given the ids alone."""
        return self.called_with(IDS)

    @cached_property
    def padded(self) -> dict[str, Tensor]:
        """What it is called with where Cutaway is given a batch padded on the left; `inputs` again where the model
        takes no mask, or makes no numbers of one."""
        if "attention_mask" not in self.inputs:
            return self.inputs
        called = self.called_with(**PADDED)
        return called if bool(self.plain(called).isfinite().any()) else self.inputs

    @property
    def is_padded(self) -> bool:
        """Whether `padded` is."""
        return self.padded is not self.inputs

    def called_with(self, *prompt: Any, **given: Any) -> dict[str, Any]:
        """The very arguments that a read calls the model with: an oracle's call must have the same."""
        calls: list[dict[str, Any]] = []

        def note(_module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            assert not args, "Cutaway calls the model by name"
            calls.append(dict(kwargs))

        hook = self.hf.register_forward_pre_hook(note, with_kwargs=True)
        try:
            self.model.read(*prompt, str(self.paths[0]), **given)
        finally:
            hook.remove()
        return calls[0]

    def plain(self, inputs: Mapping[str, Any]) -> Tensor:
        """What the plain model returns."""
        with torch.no_grad():
            return result_of(self.hf(**inputs))

    def host(self, path: ValuePath) -> Any:
        """The host of a value in the opened model."""
        host: Any = self.model if path.layer is None else self.model.layers[path.layer]
        inner = {"attention": "self_attn", "mixer": "mixer", "mlp": "mlp"}.get(path.value.host)
        return getattr(host, inner) if inner else host

    @cached_property
    def spots(self) -> dict[str, Spot]:
        """Where raw torch has each value: those that one pass comes by once, in modules that stand in one place.

        The softmax is raw torch's to see under eager attention alone: the other kernels have none.
        """
        places: dict[int, int] = {}
        for _, module in self.hf.named_modules(remove_duplicate=False):
            places[id(module)] = places.get(id(module), 0) + 1
        found: list[Spot] = []
        for path in self.paths:
            if path.value.derived:
                continue
            spot = spot_of(str(path), self.subject.address(path))
            interior = spot.moment in OF_SOFTMAX and self.kernel != "eager"
            if not interior and places[id(spot.module)] == 1:
                found.append(spot)
        return {spot.path: spot for spot in once(self.hf, found, self.padded)}


@contextmanager
def quiet() -> Generator[None]:
    """No warnings: untrained models have reasons for many."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
