"""An address: a value's site, bound to the module of one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.errors import DeviceError, DtypeError, ReadOnlyError, ShapeError
from cutaway.sites import MOMENTS, Moment, OperationMoment, Slot
from cutaway.sites.slots import FirstArgument, Whole
from cutaway.vocabulary import Value


@dataclass(frozen=True, eq=False)
class Address:
    """Where a value, or a module's own input or output, is in one model.

    Attributes:
        path: as a user writes it.
        value: the row of the vocabulary; None for a module's own input and output.
        module_path: the module's own path.
        within: the modules that hold it, from the model inwards.
        rank: when in a pass its moment comes; None where the survey did not come by it.
        sizes: the lengths of the axes where it is.
        overwritten: whether the model writes into the tensor afterwards, in place, so that what is kept must be a copy.
        shared: whether the tensor may be another value's too, so that an edit in place must not be made in it: what
            enters attention may be the cache's, what enters a module that of others, and an MLP without a norm is given
            the stream itself.
        place: what two names of one tensor share, as the two norm outputs do where one norm feeds attention and MLP.
    """

    path: str
    value: Value | None
    module_path: str
    module: nn.Module
    moment: Moment | OperationMoment
    slot: Slot | Whole | FirstArgument
    within: tuple[nn.Module, ...]
    rank: int | None
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    overwritten: bool = False
    shared: bool = False
    place: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", f"{self.module_path} {self.moment} {self.slot}")

    def read(self, passing: Any) -> Any:
        """The value in what passes where it is, seen in its layout."""
        return self.slot.read(passing, self.sizes)

    def write(self, passing: Any, new: Any) -> Any:
        """What passes on with `new` in the value's place."""
        return self.slot.write(passing, new)

    def describe(self) -> str:
        """The path and where that is, for messages."""
        moment = self.moment if isinstance(self.moment, OperationMoment) else MOMENTS[self.moment]
        return f"`{self.path}` ({self.module_path or 'the model'}, {moment})"

    def refuse_unless_writable(self) -> None:
        """Raises a `ReadOnlyError` for a value that can be read only."""
        if self.value is not None and self.value.read_only:
            raise ReadOnlyError(f"`{self.path}` can be read and not edited: it is derived from other values.")

    def fit(self, old: Any, new: Any, *, move: bool = False) -> Any:
        """`new`, if it can stand in the place of `old`; with `move`, on the device of `old` wherever it was.

        Raises:
            ShapeError, DtypeError, DeviceError: naming both, and what to do.
        """
        if not isinstance(old, Tensor):
            return new
        if not isinstance(new, Tensor):
            raise DtypeError(f"`{self.path}` is a tensor; it was given a {type(new).__name__}.")
        if new.shape != old.shape:
            layout = f" {self.value.layout}" if self.value else ""
            raise ShapeError(
                f"`{self.path}` has shape {list(old.shape)}{layout}; it was given {list(new.shape)}. "
                "To set part of it, write into a slice: `value[:, -1] = …`."
            )
        if new.dtype != old.dtype:
            raise DtypeError(
                f"`{self.path}` is {_name(old.dtype)}; it was given {_name(new.dtype)}. Convert it: `.to({old.dtype})`."
            )
        if new.device == old.device or move:
            return new.to(old.device)
        raise DeviceError(
            f"`{self.path}` is on {old.device}; it was given a tensor on {new.device}. Move it: `.to('{old.device}')`."
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
