"""Slots: picking a tensor out of what passes at a moment, and putting another in its place.

What passes is a tensor, or a container that holds it: a block's tuple, a model's output object, a call's arguments. A
slot hands out the tensor alone and keeps the container's type when it puts one back, so that a family that returns
tuples and one that returns tensors look the same. Where a family has the axes otherwise, the slot shows them in the
value's layout, without copying: the last axis taken apart into `(num_heads, head_dim)`, say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Call(NamedTuple):
    """The arguments that a module is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class TokenRows(NamedTuple):
    """What passes where a module is called with a row for each token, and the number of rows of the batch."""

    passing: Any
    batch: int


@dataclass(frozen=True)
class Slot:
    """A tensor in what passes: the thing itself, or the element of a container at `key`, and how it is seen.

    Attributes:
        key: an argument's name, a place in a tuple, or a field.
        split: the axes, words of the standard config, into which the last axis is taken apart; an empty word stands for
            whatever is left.
        is_first: of an argument, whether it may come by position; another is None in a call that leaves its name out.
        folded: an axis that is folded into the batch, as some families fold their heads: `[batch*num_heads query key]`.
        swapped: whether the second and third axes stand the other way round, as where heads come behind positions.
        columns: the part of the last axis that is meant: of a softmax over keys and a sink the one or the other, and of
            a projection that makes a head's query and its gate side by side, the gate.
    """

    key: str | int = 0
    split: tuple[str, ...] = ()
    is_first: bool = True
    folded: str = ""
    swapped: bool = False
    columns: Literal["", "keys", "sink", "gate"] = ""

    def read(self, passing: Any, sizes: Mapping[str, int]) -> Tensor:
        """The tensor in `passing`, seen in the value's layout: a view of it, so that an edit in place reaches it."""
        if isinstance(passing, TokenRows):
            return self.read(passing.passing, sizes).unflatten(0, (passing.batch, -1))
        tensor: Any = self._pick(passing)
        if self.folded:
            tensor = tensor.unflatten(0, (-1, sizes[self.folded]))
        if self.split:
            tensor = tensor.unflatten(-1, [sizes[axis] if axis else -1 for axis in self.split])
        if self.swapped:
            tensor = tensor.transpose(1, 2)
        return tensor[..., self._columns(tensor)] if self.columns else tensor

    def write(self, passing: Any, tensor: Tensor) -> Any:
        """What passes on, with `tensor` in the slot and the rest as it was."""
        if isinstance(passing, TokenRows):
            return TokenRows(self.write(passing.passing, tensor.flatten(0, 1)), passing.batch)
        if self.columns:
            whole = self._pick(passing).clone()
            seen = whole.unflatten(-1, (tensor.shape[-2], -1)) if self.split else whole
            seen[..., self._columns(seen)] = tensor
            return self._put(passing, whole)
        if self.swapped:
            tensor = tensor.transpose(1, 2)
        if self.split:
            tensor = tensor.flatten(-len(self.split))
        return self._put(passing, tensor.flatten(0, 1) if self.folded else tensor)

    def _columns(self, tensor: Tensor) -> Any:
        return slice(tensor.shape[-1] // 2, None) if self.columns == "gate" else _COLUMNS[self.columns]

    def _pick(self, passing: Any) -> Any:
        if isinstance(passing, Call):
            if self.key in passing.kwargs:
                return passing.kwargs[self.key]
            return passing.args[0] if self.is_first and passing.args else None
        if isinstance(passing, Mapping):
            return passing[self.key]
        if isinstance(passing, (tuple, list)):
            return passing[self.key if isinstance(self.key, int) else 0]
        return passing

    def _put(self, passing: Any, tensor: Tensor) -> Any:
        if isinstance(passing, Call):
            if self.key in passing.kwargs or not self.is_first:
                return Call(passing.args, {**passing.kwargs, str(self.key): tensor})
            return Call((tensor, *passing.args[1:]), passing.kwargs)
        if isinstance(passing, Mapping):
            passing[self.key] = tensor  # type: ignore[index]  # a ModelOutput or a dict of this call alone
            return passing
        if isinstance(passing, (tuple, list)):
            items = list(passing)
            items[self.key if isinstance(self.key, int) else 0] = tensor
            if hasattr(passing, "_fields"):
                return type(passing)(*items)
            return type(passing)(items)
        return tensor


_COLUMNS: dict[str, Any] = {"keys": slice(-1), "sink": -1}


@dataclass(frozen=True)
class Whole:
    """Everything that passes: a module's output as it stands, or its arguments as `(args, kwargs)`."""

    def read(self, passing: Any, sizes: Mapping[str, int]) -> Any:
        """What passes."""
        return passing

    def write(self, passing: Any, new: Any) -> Any:
        """What passes on."""
        return Call(tuple(new[0]), dict(new[1])) if isinstance(passing, Call) else new


@dataclass(frozen=True)
class FirstArgument:
    """A module's first argument, by position or, where there is none by position, by name."""

    def read(self, passing: Call, sizes: Mapping[str, int]) -> Any:
        """The argument."""
        return passing.args[0] if passing.args else next(iter(passing.kwargs.values()), None)

    def write(self, passing: Call, new: Any) -> Call:
        """The call with another argument in its place."""
        if passing.args:
            return Call((new, *passing.args[1:]), passing.kwargs)
        first = next(iter(passing.kwargs))
        return Call((), {**passing.kwargs, first: new})


def map_tensors(function: Callable[[Tensor], Tensor], passing: Any) -> Any:
    """What passes, with `function(tensor)` in the place of each tensor in it; containers keep their types.

    Containers are made anew, but for a model's output, which is of one call alone. What is none of them, a cache say,
    is left as it is.
    """
    from torch import Tensor

    def mapped(thing: Any) -> Any:
        kind = type(thing)
        if issubclass(kind, Tensor):
            return function(thing)
        if kind is dict:
            return {key: mapped(item) for key, item in thing.items()}
        if issubclass(kind, dict):
            for key, item in tuple(thing.items()):
                thing[key] = mapped(item)
        elif issubclass(kind, (tuple, list)):
            items = [mapped(item) for item in thing]
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        return thing

    return mapped(passing)
