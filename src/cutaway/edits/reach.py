"""Where an edit acts: in the context that opened it.

A context is Python's own (`contextvars`): a thread has one, and so has each task of an event loop. What is started with
a copy of it, as `asyncio.to_thread` and tasks are, is reached too; a thread that is started plainly is not. A pass that
waits runs in a copy of its body's context, made when it was opened, so an edit that the body opens later is looked up
in the body's own. A generator has no context: what it opens is in force for its caller while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import threading
from contextvars import ContextVar
from types import FrameType

from greenlet import getcurrent

_open: ContextVar[tuple[Reach, ...]] = ContextVar("cutaway_edits", default=())
"""The edits that are open in this context, in the order in which they were opened."""


class Reach:
    """The reach of one edit.

    Attributes:
        elsewhere: where the model ran meanwhile without being reached, in words.
        by_generator: whether it was opened in the body of a generator.
    """

    def __init__(self, what: object) -> None:
        self.elsewhere: dict[str, None] = {}
        self.by_generator = False
        self._what = what
        self._closed = False

    def open(self) -> None:
        """Begins in the context that calls."""
        self.by_generator = _opened_by_generator()
        _open.set((*_still_open(), self))

    def close(self) -> None:
        """Ends, in every context."""
        self._closed = True
        _open.set(_still_open())

    def holds(self) -> bool:
        """Whether the call under way is within reach."""
        if self in _open.get():
            return True
        running = getcurrent()
        while running.parent is not None:
            running = running.parent
            context = running.gr_context
            if context is not None and self in context.get(_open, ()):
                return True
        return False

    def note_elsewhere(self) -> None:
        """Notes the place where the model runs now."""
        self.elsewhere[whereabouts()] = None

    def crossing(self) -> bool:
        """Whether another edit of the same thing, opened later in this context, is open still.

        Blocks end in the opposite order in which they began, but not those of generators that take turns.
        """
        after = _open.get()
        after = after[after.index(self) + 1 :] if self in after else ()
        return any(other._what is self._what and other.by_generator and not other._closed for other in after)


def any_in_force() -> bool:
    """Whether an edit is open in this context."""
    return bool(_still_open())


def _still_open() -> tuple[Reach, ...]:
    return tuple(reach for reach in _open.get() if not reach._closed)


_ENTERS = ("__enter__", "_enter")
"""The methods by which a block is entered."""


def _opened_by_generator() -> bool:
    """Whether the block that is being entered stands in a generator, an `@contextmanager` function among them."""
    frame: FrameType | None = sys._getframe()
    own = {__name__, contextlib.__name__}
    while frame is not None and (frame.f_globals.get("__name__") in own or frame.f_code.co_name in _ENTERS):
        frame = frame.f_back
    kinds = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
    return frame is not None and bool(frame.f_code.co_flags & kinds)


def whereabouts() -> str:
    """The thread that calls, and the task of the event loop that runs in it."""
    thread = threading.current_thread().name
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return f"thread {thread!r}" if task is None else f"task {task.get_name()!r} of thread {thread!r}"
