"""Which of the open traces of a model a line of code means.

Mostly one is open. Where several are, one in the block of another, the innermost is meant. But a generator may be
suspended inside the block of its trace, and what runs meanwhile is not in that block: two generators that each hold a
trace of one model take turns, and each is to be answered by its own pass. So a trace notes the frames of the calls by
which it was opened. The innermost of these that is still being called is where the trace is *at home*; a line of code
means the trace that is at home nearest to it. Of several in one place it is the one opened last, one that a suspended
generator holds only where there is no other.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from contextvars import ContextVar
from types import FrameType
from typing import Protocol, TypeVar

from cutaway.errors import NoTraceError

_ENTERS = {"__enter__", "__aenter__", "enter_context", "enter_async_context"}
"""Functions by which a with-block of the caller's opens what a generator holds, as `contextlib.contextmanager` does."""


class OpenTrace(Protocol):
    """What is to be known of a trace."""

    opened_by: list[FrameType]
    """The frames of the calls by which it was opened, the innermost first."""

    @property
    def subject(self) -> object:
        """The model that it traces."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether its block has been entered and not been left."""
        ...


T = TypeVar("T", bound=OpenTrace)


_open: ContextVar[tuple[weakref.ref[OpenTrace], ...]] = ContextVar("cutaway_open_traces", default=())
"""Weakly, so that a trace which an interrupt has kept from leaving its block is let go of, and closed."""


def add(trace: OpenTrace) -> None:
    """Notes a trace as open in this context; called by what its block calls when it is entered."""
    trace.opened_by = _frames(sys._getframe(3))  # that of the with-statement, past the block's two methods
    _open.set((*_still_open(but=trace), weakref.ref(trace)))


def discard(trace: OpenTrace) -> None:
    """Notes that a trace is no longer open."""
    trace.opened_by = []
    _open.set(_still_open(but=trace))


def _still_open(but: OpenTrace) -> tuple[weakref.ref[OpenTrace], ...]:
    """The references to those that are open, without one of them."""
    held = _open.get()
    return tuple(ref for ref in held if (trace := ref()) is not None and trace is not but and trace.is_open)


def meant(subject: object) -> OpenTrace | None:
    """The open trace of a model that the line of code under way means; None where none is open in this context.

    Raises:
        NoTraceError: several are open, and it is in the block of none.
    """
    found = [
        trace for ref in _open.get() if (trace := ref()) is not None and trace.is_open and trace.subject is subject
    ]
    if len(found) < 2:
        return found[0] if found else None
    calling = {frame: depth for depth, frame in enumerate(_frames(sys._getframe(1)))}
    home = {id(trace): _home(trace, calling) for trace in found}
    nearest = min(depth for depth, _ in home.values())
    here = [trace for trace in found if home[id(trace)][0] == nearest]
    own = [trace for trace in here if not home[id(trace)][1]]
    if not own and len(here) > 1:
        holders = ", ".join(f"`{trace.opened_by[0].f_code.co_name}`" for trace in here)
        raise NoTraceError(
            f"{len(here)} traces of this model are open, each in the block of a generator that is suspended "
            f"({holders}), and this line is in none of these blocks. Ask for values inside the block."
        )
    return (own or here)[-1]


def _home(trace: OpenTrace, calling: dict[FrameType, int]) -> tuple[int, bool]:
    """How far from the line of code a trace is at home, and whether it is a generator there that holds it."""
    held = False
    for frame in trace.opened_by:
        if frame in calling:
            return calling[frame], held
        if frame.f_code.co_name in _ENTERS:
            held = False
        elif frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE):
            held = True
    return len(calling), held


def _frames(frame: FrameType | None) -> list[FrameType]:
    found: list[FrameType] = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found
