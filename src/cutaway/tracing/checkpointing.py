"""Gradient checkpointing, passed over by the calls in which something is read or edited.

A checkpointed block runs once and is forgotten, and backward runs it again for its gradients: outside the pass, perhaps
in another thread, and when an edit of it may be gone, so that the gradients would be those of another model. A block
that has something attached in it is therefore run as it would be without checkpointing, in those calls alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

from cutaway.tracing.attach import Attachment
from cutaway.tracing.overlays import lay, lift

_FUNCTION = "_gradient_checkpointing_func"
"""Where a transformers module keeps the function through which it, or its layers, are called."""


class Remembered:
    """An overlay on a module's checkpointing: the calls that are answered run their function and keep all of it."""

    outermost = True

    def __init__(self, module: nn.Module, answers: Callable[[], bool]) -> None:
        self._module = module
        self._answers = answers

    def put_on(self) -> None:
        """Lays the overlay."""
        lay(self._module, self, _FUNCTION)

    def call(self, below: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stands in for the checkpointing of `function`."""
        return function(*args, **kwargs) if self._answers() else below(function, *args, **kwargs)

    def remove(self) -> None:
        """Takes the overlay off."""
        lift(self._module, self)


def remember(modules: Iterable[nn.Module], answers: Callable[[], bool], noted: list[Attachment]) -> None:
    """Has those of the modules that are checkpointed, or whose layers are, keep what they compute."""
    for module in modules:
        if _FUNCTION in vars(module):
            remembered = Remembered(module, answers)
            noted.append(remembered)
            remembered.put_on()


def checkpoint_around() -> Any:
    """What tells the checkpoint, not of the reentrant kind, in which the thread computes; None outside of one."""
    autograd: Any = torch._C._autograd  # pyright: ignore[reportAttributeAccessIssue]
    hooks = autograd._top_saved_tensors_default_hooks(True)
    return hooks[0] if hooks is not None and hooks[0].__module__ == "torch.utils.checkpoint" else None


def backward_under_way() -> int:
    """The number of the backward pass that the thread runs, in which a checkpoint computes again; -1 outside of one."""
    return torch._C._current_graph_task_id()


def reentrant_around() -> int:
    """In how many checkpoints of the reentrant kind the thread computes; their forward is without a graph."""
    if torch.is_grad_enabled():
        return 0
    count = 0
    above: FrameType | None = sys._getframe()
    while above is not None:
        count += above.f_code is _REENTRANT
        above = above.f_back
    return count


_REENTRANT: CodeType = CheckpointFunction.forward.__code__
