"""A watch on the softmax inside an eager attention function, or inside the forward of an attention that calls none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cutaway.errors import NonFiniteWarning
from cutaway.sites import Moment
from cutaway.tracing.torch_state import take_off_function_mode

T = TypeVar("T")
_SOFTMAX = (torch.nn.functional.softmax, torch.softmax, Tensor.softmax)
_DROPOUT = (torch.nn.functional.dropout, torch.dropout)


class SoftmaxWatch(TorchFunctionMode):
    """Serves the scores as they enter the first softmax, its result, and the pattern as it leaves the dropout after it.

    torch takes a function mode off while its handler runs, so whatever the body computes while the pass waits in here
    is not watched.
    """

    def __init__(
        self, reach: Callable[[Moment, Tensor], Tensor], on_scores: Callable[[Tensor], None] | None = None
    ) -> None:
        super().__init__()
        self._reach = reach
        self._on_scores = on_scores
        self._scores_seen = False
        self._pattern_seen = False

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        take_off_function_mode(self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _SOFTMAX and not self._scores_seen:
            self._scores_seen = True
            if self._on_scores is not None:
                self._on_scores(args[0])
            return self._reach("softmax result", func(self._reach("softmax", args[0]), *args[1:], **kwargs))
        result = func(*args, **kwargs)
        if func in _DROPOUT and self._scores_seen and not self._pattern_seen:
            self._pattern_seen = True
            return self._reach("pattern", result)
        return result


def watched(watch: SoftmaxWatch, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Calls a function under a watch, which does not outlast it whenever an interrupt comes."""
    try:
        with watch:
            return function(*args, **kwargs)
    except BaseException:
        take_off_function_mode(watch)
        raise


def report_overflow(module: nn.Module, query: Tensor, key: Tensor, scores: Tensor) -> None:
    """Warns where a half-precision model's own eager attention has overflowed, with the remedy.

    A mask adds the dtype's minimum, so minus infinity is usual; plus infinity and NaN are not.
    """
    if scores.dtype not in (torch.float16, torch.bfloat16) or scores.is_meta:
        return
    if not (scores.isnan().any() or (scores == float("inf")).any()):
        return
    groups = query.shape[1] // key.shape[1]
    keys = key.float().repeat_interleave(groups, dim=1)
    largest = (query.float() @ keys.transpose(-1, -2)).abs().max().item()
    warnings.warn(
        f"layer {getattr(module, 'layer_idx', '?')}: attention_scores are not finite. The largest product of a query "
        f"and a key is {largest:.3g}, and {str(scores.dtype).removeprefix('torch.')} ends at "
        f"{torch.finfo(scores.dtype).max:.3g}; eager attention multiplies before it scales. Load the model with "
        "attn_implementation='sdpa', under which Cutaway computes the same scores in float32, or with "
        "dtype=torch.bfloat16.",
        NonFiniteWarning,
        stacklevel=2,
    )
