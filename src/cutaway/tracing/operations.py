"""The fifth kind of site, on demand only: a call inside a module's forward.

While something is attached to such a call, a copy of that one module's `forward` lies on it, with a watch on every
call; functions that it calls are entered the same way where something is attached inside them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

from torch import nn

from cutaway.sites import OperationMoment
from cutaway.sites.slots import Call
from cutaway.tracing.overlays import lay, lift
from cutaway.tracing.source import watched_copy


@dataclass(eq=False)
class OperationTap:
    """A callback on one edge of one call inside one module's forward."""

    module: nn.Module
    moment: OperationMoment
    callback: Callable[[Any], Any]
    answers: Callable[[], bool]

    def put_on(self) -> None:
        """Puts the tap on, and a copy of the forward with the first one."""
        with _lock:
            _taps.setdefault(self.module, []).append(self)
            if self.module not in _copies:
                _copies[self.module] = _Copy(self.module)
            lay(self.module, _copies[self.module])

    def remove(self) -> None:
        """Takes the tap off, and the copy of the forward with the last one."""
        with _lock:
            taps = _taps.get(self.module, [])
            if self in taps:
                taps.remove(self)
            if taps:
                return
            if self.module in _copies:
                lift(self.module, _copies[self.module])
                _copies.pop(self.module, None)
            _taps.pop(self.module, None)


class _Copy:
    """The overlay: the copy of a module's forward, run where a tap answers.

    A copy that runs looks up its module's taps at every call, so that one put on while the pass waits inside is served.
    """

    outermost = False

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)

    def call(self, below: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the copy if a tap is meant for the call under way, and what is below if not."""
        module = self._module()
        if module is None or not any(tap.answers() for tap in _taps.get(module, ())):
            return below(*args, **kwargs)
        copy = watched_copy(type(module).forward, partial(_watch, module, ()))
        return MethodType(copy, module)(*args, **kwargs)


_taps: weakref.WeakKeyDictionary[nn.Module, list[OperationTap]] = weakref.WeakKeyDictionary()
_copies: weakref.WeakKeyDictionary[nn.Module, _Copy] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def _watch(module: nn.Module, chain: tuple[str, ...], name: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Makes a call of the copy, serving what is tapped at it and inside it."""
    chain = (*chain, name)
    left = OperationMoment(chain, "exit")
    if not _tapped(module, chain):
        return _reach(module, left, function(*args, **kwargs))  # one may be put on while the pass waits inside
    function = _reach(module, OperationMoment(chain, "function"), function)
    call = _reach(module, OperationMoment(chain, "enter"), Call(args, kwargs))
    if any(len(inside) > len(chain) for inside in _tapped(module, chain)):
        function = watched_copy(function, partial(_watch, module, chain))
    return _reach(module, left, function(*call.args, **call.kwargs))


def _tapped(module: nn.Module, chain: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The calls with taps that are this one or stand inside it."""
    return [tap.moment.chain for tap in _taps.get(module, ()) if tap.moment.chain[: len(chain)] == chain]


def _reach(module: nn.Module, moment: OperationMoment, passing: Any) -> Any:
    for tap in tuple(_taps.get(module, ())):
        if tap.moment == moment and tap.answers():
            changed = tap.callback(passing)
            passing = passing if changed is None else changed
    return passing
