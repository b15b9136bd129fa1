"""A function edit: a function for one value, and where in the sequence it counts."""

from __future__ import annotations

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
        object.__setattr__(self, "choice", as_choice(self.positions))
        value = self.address.value
        if self.choice is not None and (value is None or token_axis(value) is None):
            raise InputError(f"`{self.address.path}` has no axis of tokens, so it cannot be edited at positions.")
