"""The scores and the pattern under a fused kernel, which has no softmax to look at.

The family's own eager function runs beside the kernel, under a watch. What flows on is the kernel's own result wherever
scores and pattern were left as they are, so that looking changes nothing; where one was edited, it is the eager
function's. Half-precision heads are widened to float32 for it, and the query is scaled before the product: a fused
kernel accumulates in float32 too, and phi-2's products pass float16's largest number by far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask

from cutaway.sites import Moment
from cutaway.tracing.masks import kernel_mask
from cutaway.tracing.softmax_watch import SoftmaxWatch, watched

Attention = Callable[..., tuple[Tensor, Tensor | None]]
"""An attention function of transformers: of module, query, key, value and mask, gives the result and the pattern."""

Reach = Callable[[Moment, Tensor], Tensor]
"""Serves what is asked at a moment, and returns what is to pass on."""

AttentionCall = tuple[nn.Module, Tensor, Tensor, Tensor, Any]
"""Module, query, key, value, mask."""


def beside_a_kernel(
    kernel: Attention, eager: Attention, reach: Reach, call: AttentionCall, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """What a layer's attention gives, with scores and pattern served on the way.

    With gradients, the kernel's result carries those of the eager function, so that they reach scores and pattern.
    Where dropout is active there is one draw, the eager function's, which is then the pattern that values are mixed
    with.
    """
    watch = _Unedited(reach)
    result, weights = _eager(eager, watch, call, options)
    if watch.edited or options.get("dropout"):
        return result, weights
    exact, weights = kernel(*call, **options)
    if not result.requires_grad:
        return exact, weights
    return _with_the_gradients_of(result, exact), weights


class _Unedited:
    """Serves scores and pattern, and finds out whether they were edited: exchanged or written into."""

    def __init__(self, reach: Reach) -> None:
        self.edited = False
        self._reach = reach

    def __call__(self, moment: Moment, passing: Tensor) -> Tensor:
        before = passing.detach().clone()
        after = self._reach(moment, passing)
        self.edited = self.edited or not _same(before, after)
        return after


def _same(before: Tensor, after: Tensor) -> bool:
    if before.is_meta:
        return False
    after = after.detach()
    return torch.equal(before, after) or bool(((before == after) | (before.isnan() & after.isnan())).all())


def _with_the_gradients_of(result: Tensor, exact: Tensor) -> Tensor:
    """`exact` in value, bit for bit, and `result` in gradient."""
    return exact.detach() + (result - result.detach()).nan_to_num(0, 0, 0)


def _eager(
    eager: Attention, reach: Reach, call: AttentionCall, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    module, query, key, value, attention_mask = call
    options = dict(options)
    dtype = query.dtype
    if dtype in (torch.float16, torch.bfloat16):
        query, key, value = query.float(), key.float(), value.float()
    scaling = options.pop("scaling", None)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    is_causal = options.get("is_causal")
    mask = kernel_mask(
        attention_mask,
        query,
        key,
        getattr(module, "is_causal", True) if is_causal is None else is_causal,
        flash=_is_flash(module),
        window=options.get("sliding_window"),
    )
    additive = mask.additive
    if additive is None:  # to which an eager function may add all the same, as ModernBERT's does
        additive = query.new_zeros((1, 1, query.shape[-2], key.shape[-2]))
    call = (module, query * scaling, key, value, additive)
    result, weights = watched(SoftmaxWatch(reach), eager, *call, scaling=1.0, **options)
    if mask.empty is not None:
        result = result.masked_fill(mask.empty.transpose(1, 2)[..., None], 0)
    return result.to(dtype), weights


def _is_flash(module: Any) -> bool:
    """Whether the model's masks are made for a flash kernel, which takes `[batch key]` or none."""
    name = module.config._attn_implementation
    return ALL_MASK_ATTENTION_FUNCTIONS.get(name) is flash_attention_mask
