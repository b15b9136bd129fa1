"""Dropout that drops nothing, for the length of a check and in its thread alone.

A model in training mode drops other entries in each pass, so that no two passes could be compared, and a pattern is
what dropout has left of its softmax. The modules' training flags belong to whoever trains the model, perhaps in
another thread meanwhile, so they are left alone: torch's functions are called as in evaluation.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_DROPOUTS: tuple[Any, ...] = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
)


class _WithoutDropout(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            args, kwargs["training"] = args[:2], False
        elif func is torch.dropout:
            args, kwargs = (args[0] if args else kwargs["input"], 0.0, False), {}
        elif func is functional.scaled_dot_product_attention:
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        return func(*args, **kwargs)


def without_dropout(hf: nn.Module) -> AbstractContextManager[object]:
    """A with-block in which this thread's passes drop nothing; nothing is put in force for a model in evaluation."""
    return _WithoutDropout() if is_training(hf) else contextlib.nullcontext()


def is_training(hf: nn.Module) -> bool:
    """Whether a module of it is in training mode."""
    return any(module.training for module in hf.modules())
