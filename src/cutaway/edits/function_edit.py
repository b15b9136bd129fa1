"""A function edit: a function for one value, and where in the sequence it counts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from cutaway.edits.positions import Choice, Positions, as_choice, token_axis
from cutaway.errors import InputError
from cutaway.subject.address import Address

ValueFunction = Callable[[Tensor], Tensor | None]
"""Given a value; edits it in place, or returns what is to stand in its place, or returns None and leaves it."""


@dataclass(frozen=True, eq=False)
class FunctionEdit:
    """A function for one value, and the positions at which it counts."""

    address: Address
    function: ValueFunction
    positions: Positions | Choice = None
    choice: Choice = field(init=False)

    def __post_init__(self) -> None:
        self.address.refuse_unless_writable()
        if not callable(self.function):
            raise InputError(
                f"`{self.address.path}` is edited by a function of its value; what was given is not one: "
                f"{type(self.function).__name__}."
            )
        _refuse_other_arguments(self.address.path, self.function)
        object.__setattr__(self, "choice", as_choice(self.positions))
        value = self.address.value
        if self.choice is not None and (value is None or token_axis(value) is None):
            raise InputError(f"`{self.address.path}` has no axis of tokens, so it cannot be edited at positions.")


def _refuse_other_arguments(path: str, function: ValueFunction) -> None:
    """Raises where a function cannot be called with a value alone, as hooks of other libraries cannot.

    Raises:
        InputError: saying what it takes.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some that are written in C tell nothing
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise InputError(
            f"a function for `{path}` is called with the value alone, `{name}(value)`; what was given is "
            f"`{name}{signature}`. What else it needs, as a layer's number, is bound before, by `functools.partial`."
        ) from error
