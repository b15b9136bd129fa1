"""Overlays: what stands in a module's `forward`, for the length of a pass, where torch has no hook.

An overlay is an attribute of the one module; its class and every other model are left alone. Several may lie on one
module, of several passes, and each is taken off on its own; with the last one the module has its own `forward` again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import nn


class Overlay(Protocol):
    """Something that lies on a module's `forward`."""

    outermost: bool
    """Whether it lies above the overlays that are not."""

    def call(self, below: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stands in for `forward`; `below` is what it lies on."""
        ...


class _Covered:
    def __init__(self, module: nn.Module) -> None:
        self.own_attribute = module.__dict__.get("forward")
        self.original: Callable[..., Any] = module.forward
        self.overlays: list[Overlay] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Put together at the call: torch looks `forward` up before the hooks at the entrance, and a pass that waits in
        # one of these may have something laid here.
        forward = self.original
        for overlay in sorted(self.overlays, key=lambda overlay: overlay.outermost):
            forward = partial(overlay.call, forward)
        return forward(*args, **kwargs)


_covered: weakref.WeakKeyDictionary[nn.Module, _Covered] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def lay(module: nn.Module, overlay: Overlay) -> None:
    """Lays an overlay on a module's `forward`."""
    with _lock:
        covered = _covered.get(module)
        if covered is None:
            covered = _covered[module] = _Covered(module)
            module.forward = covered
        covered.overlays.append(overlay)


def lift(module: nn.Module, overlay: Overlay) -> None:
    """Takes an overlay off; does nothing if it is off already."""
    with _lock:
        covered = _covered.get(module)
        if covered is None or overlay not in covered.overlays:
            return
        covered.overlays.remove(overlay)
        if covered.overlays:
            return
        del _covered[module]
        if covered.own_attribute is None:
            del module.forward
        else:
            module.forward = covered.own_attribute


_RUN = object()


class Door:
    """An overlay that can be told, at the module's entrance, to return an output instead of running the module.

    torch looks `forward` up before it calls the hooks at the entrance, so the door must be in place before.
    """

    outermost = True

    def __init__(self, module: nn.Module, answers: Callable[[], bool]) -> None:
        self.output: Any = _RUN
        self._module = module
        self._answers = answers
        lay(module, self)

    def call(self, below: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs what is below, or returns the output once."""
        if self.output is _RUN or not self._answers():
            return below(*args, **kwargs)
        output, self.output = self.output, _RUN
        return output

    def remove(self) -> None:
        """Takes the door off."""
        lift(self._module, self)
