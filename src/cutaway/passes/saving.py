"""`.save()`: a value as it is now.

A name in the body is the live tensor, as in NumPy: an edit shows in it. `x.save()` returns a copy that no later edit
changes. The method is carried by the tensors that values hand out, as an attribute of the one tensor; it refers to its
tensor weakly, so there is no reference cycle, and torch's class is left alone.
"""

from __future__ import annotations

import collections
import weakref
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")


class _Save:
    """The bound method `save` of one tensor."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor: weakref.ref[Tensor] | None = weakref.ref(tensor)

    def __call__(self) -> Tensor:
        """A copy of the tensor as it is now."""
        tensor = self._tensor() if self._tensor is not None else None
        if tensor is None:
            raise RuntimeError("this tensor is a copy of the one that carried `.save()`; use cutaway.save(tensor).")
        return save(tensor)

    def __deepcopy__(self, memo: Any) -> _Save:
        copy = _Save.__new__(_Save)
        copy._tensor = None
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled tensor takes its attributes along. `torch.load` refuses classes it does not know, so what stands in
        # the file in this one's place is something it does know, and means nothing.
        return (collections.OrderedDict, ())


def save(thing: T) -> T:
    """Copies a tensor, or every tensor in a tuple, list or dict, as it is now; anything else is returned as it is.

    A copy stays in the autograd graph of what it was copied from.
    """
    if isinstance(thing, Tensor):
        return carry_save(thing.clone())  # type: ignore[return-value]
    if isinstance(thing, dict):
        return type(thing)((key, save(value)) for key, value in thing.items())  # type: ignore[call-arg]
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return type(thing)(*(save(item) for item in thing))  # type: ignore[return-value]
    if isinstance(thing, (tuple, list)):
        return type(thing)(save(item) for item in thing)  # type: ignore[call-arg]
    return thing


def carry_save(thing: Any) -> Any:
    """Gives a tensor, or the tensors in a tuple, their `.save()`; returns the same thing."""
    if isinstance(thing, Tensor):
        if "save" not in thing.__dict__:
            thing.save = _Save(thing)  # type: ignore[attr-defined]
    elif isinstance(thing, (tuple, list)):
        for item in thing:
            carry_save(item)
    return thing


__all__ = ["carry_save", "save"]
