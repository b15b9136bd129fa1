"""What is the caller's, and given to a pass: tensors, which are left alone, and a cache, which is advanced whole.

A forward given a cache puts the keys and values of its tokens into it, layer after layer. A pass that was left half-way
would leave the layers unequal. So one that is given a cache runs to its end, as a plain call does, and where an
exception leaves it the cache is put back as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, StaticLayer

from cutaway.passes.handed_out import own_copy

CACHE_ARGUMENTS = ("cache", "past_key_values")
"""The names of a forward's argument that is a cache; the older one second."""


def with_own_tensors(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments with copies of the tensors among them, so that no edit reaches the caller's."""
    return {name: own_copy(given) if isinstance(given, Tensor) else given for name, given in inputs.items()}


class CallersCache:
    """A caller's cache, and all that is needed to put it back as it is now.

    Dynamic layers make new tensors when they grow, so theirs need only be kept. Others are written into: they are
    copied, and of a static layer only the places that are free.
    """

    def __init__(self, cache: Any) -> None:
        self._restore: list[Callable[[], None]] = []
        self.is_inference = False
        for part in _parts(cache):
            self._keep(part)

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> Self | None:
        """The cache among a call's arguments, if there is one."""
        cache = next((arguments[name] for name in CACHE_ARGUMENTS if arguments.get(name) is not None), None)
        return None if cache is None else cls(cache)

    def put_back(self) -> None:
        """Puts the cache back as it was."""
        for restore in self._restore:
            restore()

    def _keep(self, part: Any) -> None:
        attributes = dict(vars(part))

        def restore() -> None:
            vars(part).clear()
            vars(part).update(attributes)

        self._restore.append(restore)
        grows = type(part) in (DynamicLayer, DynamicSlidingWindowLayer)
        free = int(part.cumulative_length) if type(part) is StaticLayer else 0
        for name, held in attributes.items():
            self._keep_held(held, copied=not grows, free=free if name in ("keys", "values") else 0)

    def _keep_held(self, held: Any, *, copied: bool, free: int) -> None:
        """Keeps what a list or dict holds now, and what is in a tensor from the place `free` on."""
        kind = type(held)
        if issubclass(kind, Tensor):
            self.is_inference = self.is_inference or held.is_inference()
            if copied:
                self._restore.append(_rewriting(held, free))
        elif issubclass(kind, (list, dict)):
            self._restore.append(_refilling(held))
            for item in held.values() if issubclass(kind, dict) else held:
                self._keep_held(item, copied=copied, free=0)


def in_mode_of(cache: CallersCache | None) -> AbstractContextManager[Any]:
    """Inference mode where the cache was made in it, and none where it was not, or there is no cache."""
    inference = cache is not None and cache.is_inference
    same = torch.is_inference_mode_enabled() == inference
    return nullcontext() if same else torch.inference_mode(inference)


def _parts(cache: Any) -> Iterator[Any]:
    """A cache, its layers, and the caches that it is made of."""
    if hasattr(cache, "__dict__"):
        yield cache
        for held in vars(cache).values():
            items: list[Any] = held if isinstance(held, list) else [held]
            for item in items:
                if type(item).__module__.startswith("transformers."):
                    yield from _parts(item)


def _refilling(held: list[Any] | dict[Any, Any]) -> Callable[[], None]:
    items = held.copy()

    def refill() -> None:
        held.clear()
        held.extend(items) if isinstance(held, list) else held.update(items)  # type: ignore[arg-type]

    return refill


def _rewriting(tensor: Tensor, free: int) -> Callable[[], None]:
    def part() -> Tensor:
        return tensor[..., free:, :] if free else tensor

    recorded, old = tensor.requires_grad, own_copy(part().detach())

    def rewrite() -> None:
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            if tensor.requires_grad and not recorded:
                tensor.detach_()
            part().copy_(old)

    return rewrite
