"""The masks of the fused kernels, written as the additive mask that an eager attention function takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class KernelMask(NamedTuple):
    """A kernel's mask in an eager attention's terms.

    Attributes:
        additive: added to the scores: 0 where attention is allowed, the dtype's minimum where it is not; or None.
        empty: `[batch 1 query]`, the queries that may attend to nothing, as padding may not; None where there are
        none. A
            kernel returns zeros for them, where a softmax over minima would mix all values evenly.
    """

    additive: Tensor | None
    empty: Tensor | None


def kernel_mask(
    mask: Any, query: Tensor, key: Tensor, is_causal: bool, *, flash: bool = False, window: int | None = None
) -> KernelMask:
    """The mask that a fused kernel is given, for an eager attention.

    Args:
        mask: what a kernel is given. None stands for "causal" when there are several queries, and for "all" when there
            is one. A tensor is `[batch 1 query key]`, boolean (true is allowed) or additive; or `[batch key]`, true
            where there is no padding, for the flash kernels. Or a `BlockMask`.
        query: `[batch num_heads query qk_head_dim]`.
        key: `[batch num_kv_heads key qk_head_dim]`.
        is_causal: what the attention module says of itself.
        flash: whether the kernel is one of the flash kernels. They align the last query with the last key, where
            `torch.nn.functional.scaled_dot_product_attention` aligns the first ones; and they are told of a sliding
            window beside the mask.
        window: how many keys a query of a flash kernel may attend to, its own among them; None: all.
    """
    queries, keys = query.shape[-2], key.shape[-2]
    if flash and (mask is None or mask.ndim == 2):
        allowed = _causal(queries, keys, keys - queries, query.device, window) if is_causal else None
        if mask is not None:
            unpadded = mask[:, None, None, :].bool()
            allowed = unpadded if allowed is None else allowed & unpadded
        if allowed is None:
            return KernelMask(None, None)
    elif mask is None:
        if queries == 1 or not is_causal:
            return KernelMask(None, None)
        allowed = _causal(queries, keys, 0, query.device)
    elif not isinstance(mask, Tensor):
        allowed = _from_block_mask(mask, queries, keys, query.device)
    elif mask.dtype == torch.bool:
        allowed = mask
    else:
        return KernelMask(mask.to(query.dtype), None)
    # Eager functions take the softmax in float32, in which the lowest float64 would be minus infinity.
    lowest = max(torch.finfo(query.dtype).min, torch.finfo(torch.float32).min)
    additive = torch.zeros((), dtype=query.dtype, device=query.device).where(allowed, lowest)
    return KernelMask(additive, ~allowed.any(dim=-1))


def _causal(queries: int, keys: int, offset: int, device: torch.device, window: int | None = None) -> Tensor:
    distance = torch.arange(queries, device=device)[:, None] + offset - torch.arange(keys, device=device)
    allowed = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    return allowed[None, None]


def _from_block_mask(mask: Any, queries: int, keys: int, device: torch.device) -> Tensor:
    from torch.nn.attention.flex_attention import create_mask

    batch = mask.shape[0]
    return create_mask(mask.mask_mod, batch, None, queries, keys, device=str(device))
