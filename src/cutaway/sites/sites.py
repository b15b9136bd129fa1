"""The kinds of site. A family file is written in these words.

1. a module's output and 2. a module's input, by torch's forward hooks; 3. the arguments and the result of the
attention function; 4. the softmax inside it, and the pattern that comes of it. A stream that enters a module and also
passes by it is a moment of its own, since an edit must reach both ways; so is a module that is called with a row for
each token, `[batch*seq …]`, since what it is given does not tell where one row of the batch ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutaway.sites.slots import Slot
from cutaway.vocabulary import Host

Moment = Literal[
    "stream",
    "stream of token rows",
    "enter",
    "token rows in",
    "arguments",
    "softmax",
    "softmax result",
    "pattern",
    "result",
    "token rows out",
    "exit",
]
"""A moment in a module's call. The five in the middle are moments of an attention module alone."""

MOMENTS: dict[Moment, str] = {
    "stream": "input, with the stream that passes by",
    "stream of token rows": "input, a row for each token, with the stream that passes by",
    "enter": "input",
    "token rows in": "input, a row for each token",
    "arguments": "attention function's arguments",
    "softmax": "softmax's input inside the attention function",
    "softmax result": "after the softmax inside the attention function",
    "pattern": "after the softmax and dropout inside the attention function",
    "result": "attention function's result",
    "token rows out": "output, a row for each token",
    "exit": "output",
}
"""Each moment in words, in the order in which they come."""

STREAMS: tuple[Moment, ...] = ("stream", "stream of token rows")
"""Those at which what enters a module passes by it too."""

OF_TOKEN_ROWS: tuple[Moment, ...] = ("stream of token rows", "token rows in", "token rows out")
"""Those of a module that is called with a row for each token."""

AT_MODULES: tuple[Moment, ...] = (*STREAMS, "enter", "token rows in", "token rows out", "exit")
"""The moments of every module."""

INSIDE: tuple[Moment, ...] = ("arguments", "softmax", "softmax result", "pattern", "result")
"""The moments inside an attention's call."""

OF_SOFTMAX: tuple[Moment, ...] = ("softmax", "softmax result", "pattern")
"""Those of them that are had of attentions that do not call transformers' interface too."""


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
    """A moment of a module, and the slot of the tensor in it.

    The module's path is relative to the value's host, or to another that stands in `of`: what a block with a norm after
    each sublayer adds to the stream leaves a module beside the attention, not inside.
    """

    module: str
    moment: Moment
    slot: Slot
    of: Host | None = None

    def describe(self) -> str:
        """Where the value is read, in words: "`mlp`'s output"."""
        if self.moment in AT_MODULES:
            owner = f"`{self.module}`'s" if self.module else "its host's own"
            return f"{owner} {MOMENTS[self.moment]}"
        return MOMENTS[self.moment]


def output_of(
    module: str = "",
    *,
    key: str | int = 0,
    split: tuple[str, ...] = (),
    of: Host | None = None,
    rows: bool = False,
    swapped: bool = False,
) -> Site:
    """A module's output; where that is a tuple, its first element, where it has named fields, the one at `key`.

    With `rows`, the module is called with a row for each token, and the value has the batch and the sequence apart.
    `split` and `swapped` are as in `Slot`.
    """
    return Site(module, "token rows out" if rows else "exit", Slot(key, split, swapped=swapped), of)


def gate_beside(module: str) -> Site:
    """The gate that a projection returns behind each head's query, as wide as the head."""
    return Site(module, "exit", Slot(split=("num_heads", ""), columns="gate"))


def input_of(
    module: str = "",
    *,
    argument: str = "hidden_states",
    split: tuple[str, ...] = (),
    is_first: bool = True,
    of: Host | None = None,
    rows: bool = False,
) -> Site:
    """A module's input: the argument of this name; where it `is_first`, also by position; `rows` as in `output_of`."""
    return Site(module, "token rows in" if rows else "enter", Slot(argument, split, is_first), of)


def stream_at(module: str, *, of: Host | None = None, rows: bool = False) -> Site:
    """The stream as it enters a module, a norm say, and passes by it: an edit reaches both ways; `rows` as in
    `output_of`."""
    return Site(module, "stream of token rows" if rows else "stream", Slot("input"), of)


def attention_argument(name: Literal["query", "key", "value"], module: str = "") -> Site:
    """An argument of the attention function, after the rotary and, with a cache, for all positions so far.

    `module` names what calls the function, where that is a module inside the attention.
    """
    return Site(module, "arguments", Slot(name))


def attention_result(module: str = "") -> Site:
    """What the attention function returns, before the output projection: `[batch seq num_heads head_dim]`."""
    return Site(module, "result", Slot())


def softmax_input(module: str = "", *, folded: str = "", sinks: bool = False) -> Site:
    """What enters the softmax: scaled, masked scores; of the keys alone where there are `sinks`; `folded` as in
    `Slot`."""
    return Site(module, "softmax", Slot(folded=folded, columns="keys" if sinks else ""))


def sink(module: str = "") -> Site:
    """The share of the softmax that goes to the sink, which stands behind the keys."""
    return Site(module, "softmax result", Slot(columns="sink"))


def pattern(module: str = "", *, folded: str = "", dropout: bool = True) -> Site:
    """What the values are mixed with: after the softmax, and the dropout unless the family has none."""
    return Site(module, "pattern" if dropout else "softmax result", Slot(folded=folded))
