"""Breaking Cutaway or a model on purpose, at one module and one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.tracing import ForwardPass

Wrap = Callable[[Callable[[Any], Any], Any], Any]
"""Given the callback and what passes, does in its stead what a broken engine would."""


def tamper(patch: pytest.MonkeyPatch, module: nn.Module, moment: str, wrap: Wrap) -> None:
    """Has everything that is attached to a moment of a module run through `wrap`."""
    original = ForwardPass.attach

    def attach(self: Any, where: Any, when: Any, callback: Any, *more: Any, **named: Any) -> Any:
        if where is module and when == moment:
            return original(self, where, when, lambda passing: wrap(callback, passing), *more, **named)
        return original(self, where, when, callback, *more, **named)

    patch.setattr(ForwardPass, "attach", attach)


def next_up(tensor: Tensor) -> Tensor:
    """The next number after each."""
    return tensor.nextafter(torch.full_like(tensor, float("inf")))
