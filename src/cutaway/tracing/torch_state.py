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


class Switch:
    """Puts one state in the place of another; `back()` undoes it.

    torch sets the inference mode only by a guard, which restores what it found when it exits. So the guard that is
    entered on the way there is exited on the way back, and the one that is entered on the way back, in `guard`, is to
    be given to the next switch.
    """

    __slots__ = ("_inside", "_old", "guard")

    def __init__(self, new: TorchState, guard: torch.inference_mode | None) -> None:
        self.guard: torch.inference_mode | None = None
        self._old = torch_state()
        _exit(guard)
        self._inside = _inference(new.inference)
        if self._inside is not None or guard is not None or self._old != new:
            _apply(self._old, new)

    def back(self) -> TorchState:
        """Restores the old state, and returns the one that was in force until now."""
        left = torch_state()
        _exit(self._inside)
        self.guard = _inference(self._old.inference)
        if self._inside is not None or self.guard is not None or left != self._old:
            _apply(left, self._old)
        return left


@contextlib.contextmanager
def no_settings() -> Generator[None]:
    """torch as it is where nothing was set, and without gradients, whatever is set around."""
    switch = Switch(TorchState(False, False, _NO_AUTOCAST, (), ()), None)
    try:
        yield
    finally:
        switch.back()
        _exit(switch.guard)


def _inference(wanted: bool) -> torch.inference_mode | None:
    """An entered guard that puts the inference mode in force; None where it is."""
    if torch.is_inference_mode_enabled() == wanted:
        return None
    guard = torch.inference_mode(wanted)
    guard.__enter__()
    return guard


def _exit(guard: torch.inference_mode | None) -> None:
    if guard is not None:
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
