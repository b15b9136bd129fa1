"""Overlays: what stands in a module's `forward`, for the length of a pass, where torch has no hook.

An overlay is an attribute of the one module; its class and every other model are left alone. Several may lie on one
module, of several passes, and each is taken off on its own; with the last one the module has its own `forward` again.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType
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
    """A module's `forward`, or another attribute that holds it, with what lies on it."""

    def __init__(self, module: nn.Module, attribute: str) -> None:
        self.own = module.__dict__.get(attribute)
        self.original: Callable[..., Any] = getattr(module, attribute)
        self.overlays: list[Overlay] = []
        self.standing: Callable[..., Any] | None = self.stand_in()

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What runs in the place of `forward`."""
        # Put together at the call: torch looks `forward` up before the hooks at the entrance, and a pass that waits in
        # one of these may have something laid here.
        forward = self.original
        for overlay in sorted(self.overlays, key=lambda overlay: overlay.outermost):
            forward = partial(overlay.call, forward)
        return forward(*args, **kwargs)

    def stand_in(self) -> Callable[..., Any]:
        """What stands in the place of `forward`: to all who inspect it, and transformers' `generate` does, the same.

        A method has a method stand in for it, with its name, docstring, signature and module.
        """
        call, function = self.call, getattr(self.original, "__func__", self.original)
        if not isinstance(self.original, MethodType):

            @functools.wraps(function)
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(*args, **kwargs)

            return forward

        @functools.wraps(function)
        def method(_self: Any, *args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        return MethodType(method, self.original.__self__)


_covered: weakref.WeakKeyDictionary[nn.Module, dict[str, _Covered]] = weakref.WeakKeyDictionary()
"""By module and attribute."""
_lock = threading.RLock()  # what is let go of is taken off, wherever that happens


def lay(module: nn.Module, overlay: Overlay, attribute: str | None = None) -> None:
    """Lays an overlay on a module's `forward`, or another attribute that is called; does nothing if it lies there."""
    attribute = attribute or _place(module, overlay)
    with _lock:
        covers = _covered.setdefault(module, {})
        if attribute not in covers:
            covers[attribute] = _Covered(module, attribute)
        covered = covers[attribute]
        if overlay not in covered.overlays:
            covered.overlays.append(overlay)
        if module.__dict__.get(attribute) is not covered.standing:
            setattr(module, attribute, covered.standing)


def lift(module: nn.Module, overlay: Overlay) -> None:
    """Takes an overlay off; does nothing if it is off already, and the rest if that was cut short."""
    with _lock:
        covers = _covered.get(module, {})
        for attribute, covered in tuple(covers.items()):
            if overlay in covered.overlays:
                covered.overlays.remove(overlay)
            if covered.overlays:
                continue
            if covered.standing is not None and module.__dict__.get(attribute) is covered.standing:
                if covered.own is None:
                    delattr(module, attribute)
                else:
                    setattr(module, attribute, covered.own)
            covered.standing = None  # it refers to this, and to the module
            covers.pop(attribute, None)
        if not covers:
            _covered.pop(module, None)


def _place(module: nn.Module, overlay: Overlay) -> str:
    """The attribute on which an overlay lies.

    accelerate, which brings a module's weights when it runs, keeps the module's own forward under another name.
    """
    offloaded = "_hf_hook" in module.__dict__ and "_old_forward" in module.__dict__
    return "_old_forward" if offloaded and not overlay.outermost else "forward"


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

    def put_on(self) -> None:
        """Puts the door in its place."""
        lay(self._module, self)

    def call(self, below: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs what is below, or returns the output once."""
        if self.output is _RUN or not self._answers():
            return below(*args, **kwargs)
        output, self.output = self.output, _RUN
        return output

    def remove(self) -> None:
        """Takes the door off."""
        lift(self._module, self)
