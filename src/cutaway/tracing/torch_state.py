"""What torch keeps for the running thread: grad mode, inference mode, autocast, function and dispatch modes.

A forward pass that waits and the body that runs meanwhile share one thread, so torch would mix up their settings: a
`torch.no_grad()` in the body would last into the pass. Each side's settings are therefore taken along and put back
when the other runs on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, NamedTuple

import torch
from torch import _C
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils import _python_dispatch as dispatch

_AUTOCAST_DEVICES = ("cpu", "cuda")


class TorchState(NamedTuple):
    """The thread's settings at one instant."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[bool, torch.dtype] | None, ...]
    function_modes: tuple[Any, ...]
    dispatch_modes: tuple[Any, ...]


_NO_AUTOCAST = (None,) * len(_AUTOCAST_DEVICES)


def torch_state() -> TorchState:
    """The settings now in force."""
    autocast = _NO_AUTOCAST
    if _C._is_any_autocast_enabled():
        autocast = tuple(
            (True, torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else None
            for device in _AUTOCAST_DEVICES
        )
    return TorchState(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast,
        tuple(_get_current_function_mode_stack()) if _C._len_torch_function_stack() else (),
        tuple(dispatch._get_current_dispatch_mode_stack()) if _C._len_torch_dispatch_stack() else (),
    )


Guard = Any
"""A guard of torch's C library that holds the inference mode; exiting it twice is exiting it once."""


class Switch:
    """Puts one state in the place of another by `there()`, and undoes that by `back()`.

    `back()` restores the state at which the switch was made, however far `there()` or another `back()` came before an
    interrupt cut it short.

    torch sets the inference mode only by a guard, which restores what it found when it exits. So the guard that is
    entered on the way there is exited on the way back, and the one that is entered on the way back, in `guard`, is to
    be given to the next switch.
    """

    __slots__ = ("_inside", "_old", "guard")

    def __init__(self, guard: Guard | None) -> None:
        self.guard = guard
        self._inside: Guard | None = None
        self._old = torch_state()

    def there(self, new: TorchState) -> None:
        """Puts a state in force."""
        if self.guard is None and self._old == new:
            return
        if self.guard is not None:
            _exit(self.guard)
            self.guard = None
        if torch.is_inference_mode_enabled() != new.inference:
            self._inside = _C._InferenceMode(new.inference)
            self._inside.__enter__()
        _apply(self._old, new)  # guards leave all but the inference mode and grad alone, and grad is always set

    def back(self) -> None:
        """Restores the state at which the switch was made."""
        if self._inside is not None:
            _exit(self._inside)
            self._inside = None
        if torch.is_inference_mode_enabled() != self._old.inference:
            self.guard = _C._InferenceMode(self._old.inference)
            self.guard.__enter__()
        now = torch_state()
        if now != self._old:
            _apply(now, self._old)


@contextlib.contextmanager
def no_settings() -> Generator[None]:
    """torch as it is where nothing was set, and without gradients, whatever is set around."""
    switch = Switch(None)
    try:
        try:
            switch.there(TorchState(False, False, _NO_AUTOCAST, (), ()))
            yield
        finally:
            switch.back()
    except BaseException:
        switch.back()
        raise


def take_off_function_mode(mode: TorchFunctionMode) -> None:
    """Takes a function mode off the stack, with what an interrupt left above it; does nothing where it is not on it."""
    above = _get_current_function_mode_stack()
    while mode in above:
        above.remove(_pop_mode())


def _exit(guard: Guard) -> None:
    guard.__exit__(None, None, None)


def _apply(old: TorchState, new: TorchState) -> None:
    torch._C._set_grad_enabled(new.grad)
    if old.autocast != new.autocast:
        for device, setting in zip(_AUTOCAST_DEVICES, new.autocast, strict=True):
            torch.set_autocast_enabled(device, setting is not None)
            if setting is not None:
                torch.set_autocast_dtype(device, setting[1])
        torch.clear_autocast_cache()
    if old.function_modes != new.function_modes:
        for _ in range(_C._len_torch_function_stack()):
            _pop_mode()
        for mode in new.function_modes:
            _push_mode(mode)
    if old.dispatch_modes != new.dispatch_modes:
        for _ in range(_C._len_torch_dispatch_stack()):
            dispatch._pop_mode()
        for mode in new.dispatch_modes:
            dispatch._push_mode(mode)
