"""Values that are computed from others once the pass has reached them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cutaway.edits.rows import ModelCall
from cutaway.errors import UnavailableValueError


def next_token_probs(call: ModelCall, logits: Tensor) -> Tensor:
    """softmax over the vocabulary at each row's last real position, in float32.

    Args:
        call: with its mask, in which zeros are padding, on either side, and with what it says of `logits_to_keep`.
        logits: `[batch seq vocab_size]`; `seq` is how many positions the call keeps the logits of.

    Returns:
        `[batch vocab_size]`; each row sums to 1.

    Raises:
        UnavailableValueError: the call keeps no logits of some row's last real position.
    """
    rows = torch.arange(len(logits), device=logits.device)
    return logits[rows, _last_real(call, logits)].float().softmax(dim=-1)


def _last_real(call: ModelCall, logits: Tensor) -> Tensor:
    """Where each row's last real token is among the positions of which there are logits: `[batch]`."""
    seq = call.tokens.shape[1]
    real = call.real()[:, -seq:].to(logits.device)
    if real.is_meta:
        return torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    empty = (~real.any(dim=1)).nonzero()[:, 0].tolist()
    if empty:
        raise UnavailableValueError(
            f"row {empty[0]} of this pass has no real token, so `next_token_probs` has no position to be taken at."
        )
    last = torch.where(real, torch.arange(seq, device=real.device), -1).argmax(dim=1)
    kept = call.kept()
    if kept is None:
        return last
    found = kept.to(last.device)[None, :] == last[:, None]
    missed = (~found.any(dim=1)).nonzero()[:, 0].tolist()
    if missed:
        raise UnavailableValueError(
            f"`next_token_probs` is taken at each row's last real position, and this pass computes no logits there for "
            f"row {missed[0]}, because it is called with logits_to_keep. Leave that out, say logits_to_keep=0 for all, "
            "or pad the rows on the left."
        )
    return found.long().argmax(dim=1)


def derive(name: str, call: Callable[[], ModelCall], ask: Callable[[str], Tensor]) -> Any:
    """A derived value, from the call and, through `ask`, from what the pass reaches.

    The call is looked at after that, when it is known as the model was given it, edits of its mask included.
    """
    if name == "input_size":
        return call().tokens.shape[:2]
    logits = ask("logits")
    return next_token_probs(call(), logits)
