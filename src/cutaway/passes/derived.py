"""Values that are computed from others once the pass has reached them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cutaway.edits.rows import ModelCall
from cutaway.errors import OrderError, UnavailableValueError
from cutaway.subject.contributions import as_normed, norm_after_projection
from cutaway.subject.subject import Subject
from cutaway.vocabulary import WEIGHTS, ValuePath


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


def head_contributions(subject: Subject, layer: int, premix: Tensor) -> Tensor:
    """Each head's part of `attention_output`: its output times its rows of the output projection.

    What is added to the stream is their sum and the projection's bias, which belongs to no head (Elhage et al. 2021, "A
    Mathematical Framework for Transformer Circuits"). The weight is taken as a constant: gradients go to the premix.

    Args:
        subject: the model, with its weights in place, or on the meta device.
        layer: whose projection.
        premix: `[batch seq num_heads head_dim]`, or of some tokens `[… num_heads head_dim]`.

    Returns:
        `[… num_heads hidden_size]`, of the premix's dtype.
    """
    row = WEIGHTS["W_O"]
    projection = subject.weights.read(row, subject.weights.module(row, layer), layer)
    assert projection is not None
    projection = projection.detach()
    if projection.is_meta and not premix.is_meta:
        raise UnavailableValueError(
            f"`{ValuePath('head_contributions', layer)}` needs the weight of the output projection, which is not in "
            "memory. Load the model without offloading."
        )
    projection = projection.to(premix.device, premix.dtype)
    parts = torch.einsum("...hd,hdm->...hm", premix, projection)
    norm = norm_after_projection(subject.places, layer)
    return parts if norm is None else as_normed(norm, parts, parts.sum(dim=-2))


def derive(subject: Subject, path: ValuePath, call: Callable[[], ModelCall], ask: Callable[[ValuePath], Any]) -> Any:
    """A derived value, from the call and, through `ask`, from what the pass reaches.

    The call is looked at after that, when it is known as the model was given it, edits of its mask included.

    Raises:
        OrderError: the pass is past what it is derived from.
    """
    sources: list[Any] = []
    for source in sorted(path.sources, key=subject.rank):
        try:
            sources.append(ask(source))
        except OrderError as error:
            raise type(error)(f"`{path}` is derived from `{source}`: {error}") from None
    if path.name == "input_size":
        return call().tokens.shape[:2]
    if path.name == "next_token_probs":
        return next_token_probs(call(), *sources)
    assert path.layer is not None
    return head_contributions(subject, path.layer, *sources)
