"""A part of a block or of the stack around it: a module, a value or an operation, with all that a card says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["module", "value", "operation"]


@dataclass(frozen=True)
class Part:
    """What a card says.

    Attributes:
        key: its place on the page: `attention.o_proj`, `attention_queries`, `layer.sum-1`.
        name: the standard name; for a module without one, the family's own.
        native: the family's own name where that is another, or for a module, its own path in the model.
        what: class and weights of a module, and nothing for others.
        layout: the layout with its axes, and what a module returns.
        sizes: the same with this checkpoint's sizes.
        meaning: what it is, in words.
        where: where a value is read.
        condition: what holds of it under this load only.
        missing: whether this checkpoint does not have it.
    """

    key: str
    kind: Kind
    name: str
    native: str = ""
    what: str = ""
    layout: str = ""
    sizes: str = ""
    meaning: str = ""
    where: str = ""
    condition: str = ""
    missing: bool = False
