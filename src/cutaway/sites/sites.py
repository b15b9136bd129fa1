"""The kinds of site. A family file is written in these words.

1. a module's output and 2. a module's input, by torch's forward hooks; 3. the arguments and the result of the
attention function; 4. the softmax inside it, and the pattern that comes of it. A stream that enters a module and also
passes by it is a moment of its own, since an edit must reach both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutaway.sites.slots import Slot

Moment = Literal["stream", "enter", "arguments", "softmax", "pattern", "result", "exit"]
"""A moment in a module's call. The four between entrance and exit are moments of an attention module alone."""

MOMENTS: dict[Moment, str] = {
    "stream": "input, with the stream that passes by",
    "enter": "input",
    "arguments": "attention function's arguments",
    "softmax": "softmax's input inside the attention function",
    "pattern": "after the softmax and dropout inside the attention function",
    "result": "attention function's result",
    "exit": "output",
}
"""Each moment in words, in the order in which they come."""


@dataclass(frozen=True)
class OperationMoment:
    """The fifth kind, on demand only: a call inside a module's forward: what is called, its arguments, or its result.

    `chain` names the call, and before it, where it stands inside a function that the forward calls, that call.
    """

    chain: tuple[str, ...]
    edge: Literal["function", "enter", "exit"]

    def __str__(self) -> str:
        what = "function" if self.edge == "function" else MOMENTS[self.edge]
        return f"{what} of {' > '.join(self.chain)}"


@dataclass(frozen=True)
class Site:
    """A moment of a module, whose path is relative to the value's host, and the slot of the tensor in it."""

    module: str
    moment: Moment
    slot: Slot

    def describe(self) -> str:
        """Where the value is read, in words: "`mlp`'s output"."""
        if self.moment in ("stream", "enter", "exit"):
            owner = f"`{self.module}`'s" if self.module else "its host's own"
            return f"{owner} {MOMENTS[self.moment]}"
        return MOMENTS[self.moment]


def output_of(module: str = "", *, key: str | int = 0, split: tuple[str, ...] = ()) -> Site:
    """A module's output; where that is a tuple, its first element, where it has named fields, the one at `key`."""
    return Site(module, "exit", Slot(key, split))


def input_of(
    module: str = "", *, argument: str = "hidden_states", split: tuple[str, ...] = (), is_first: bool = True
) -> Site:
    """A module's input: the argument of this name; where it `is_first`, also by position."""
    return Site(module, "enter", Slot(argument, split, is_first))


def stream_at(module: str) -> Site:
    """The stream as it enters a module, a norm say, and passes by it: an edit reaches both ways."""
    return Site(module, "stream", Slot("input"))


def attention_argument(name: Literal["query", "key", "value"]) -> Site:
    """An argument of the attention function, after the rotary and, with a cache, for all positions so far."""
    return Site("", "arguments", Slot(name))


def attention_result() -> Site:
    """What the attention function returns, before the output projection: `[batch seq num_heads head_dim]`."""
    return Site("", "result", Slot())


def softmax_input() -> Site:
    """What enters the softmax: scaled, masked scores."""
    return Site("", "softmax", Slot())


def pattern() -> Site:
    """What the values are mixed with: after the softmax and the dropout."""
    return Site("", "pattern", Slot())
