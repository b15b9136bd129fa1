"""Values that are computed from others once the pass has reached them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def input_size(input_ids: Tensor) -> torch.Size:
    """`[batch, seq]` of the call."""
    return input_ids.shape


def next_token_probs(attention_mask: Tensor | None, logits: Tensor) -> Tensor:
    """softmax over the vocabulary at each row's last real position, in float32.

    Args:
        attention_mask: `[batch seq]`, zeros are padding, on either side; None or a mask of another rank: no padding.
        logits: `[batch seq vocab_size]`.

    Returns:
        `[batch vocab_size]`; each row sums to 1.
    """
    last = last_real_positions(attention_mask, logits)
    rows = torch.arange(len(logits), device=logits.device)
    return logits[rows, last].float().softmax(dim=-1)


def last_real_positions(attention_mask: Tensor | None, values: Tensor) -> Tensor:
    """Where each row's last real token is: `[batch]`, positions in a `[batch seq …]` value."""
    batch, seq = values.shape[:2]
    if attention_mask is None or attention_mask.ndim != 2 or attention_mask.shape[1] < seq:
        return torch.full((batch,), seq - 1, device=values.device)
    mask = attention_mask[:, -seq:].to(values.device) != 0
    return (mask * torch.arange(seq, device=values.device)).argmax(dim=1)


def derive(name: str, inputs: Mapping[str, Tensor], ask: Callable[[str], Tensor]) -> Any:
    """A derived value, from the call's inputs and, through `ask`, from what the pass reaches."""
    if name == "input_size":
        return input_size(inputs["input_ids"])
    return next_token_probs(inputs.get("attention_mask"), ask("logits"))
