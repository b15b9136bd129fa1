"""Positions: which tokens of a pass an edit is meant for.

A position is a token's place in its row's whole sequence, padding not counted. It is the same with a cache, where a
pass sees the newest token alone, without one, where it sees all, and for a model that runs its prompt again half-way.
An edit given by position therefore means the same in all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from operator import index
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.errors import InputError
from cutaway.sites.slots import Call
from cutaway.vocabulary import Value


class NewToken(int):
    """The place of a generated token, counted from the end of the row's prompt."""


Positions = str | int | slice | range | Sequence[int] | None
"""Which tokens: "all" or None, "prompt", "new" (those that were generated), a position, several, or a slice of them.

A negative position counts from the end of the row's prompt.
"""

prompt_mask: ContextVar[Tensor | None] = ContextVar("cutaway_prompt_mask", default=None)
"""In the passes of a generation, the mask of its prompts: `[batch prompt]`, zeros are padding."""


def check_positions(positions: Positions) -> None:
    """Raises where `positions` is none of the forms.

    Raises:
        InputError: saying which forms there are.
    """
    if positions is None or positions in ("all", "prompt", "new"):
        return
    if isinstance(positions, slice):
        if positions.step is not None and positions.step < 1:
            raise InputError(f"a slice of positions goes forward; its step is {positions.step}.")
        return
    numbers: tuple[Any, ...] = tuple(positions) if isinstance(positions, Sequence) else (positions,)
    try:
        for number in numbers:
            index(number)
    except TypeError:
        raise InputError(
            f"positions are 'all', 'prompt', 'new', a number, several, or a slice of them; it was given {positions!r}."
        ) from None


def positions_so_far(call: Call, prompts: Tensor | None) -> Tensor:
    """The position of every token that a call's attention can see, those in its cache first: `[batch total]`.

    Padding is -1. The call's own tokens are the last ones. In a generation, `prompts` is the mask of its prompts.
    """
    return counted(real_so_far(call, prompts))


def real_so_far(call: Call, prompts: Tensor | None) -> Tensor:
    """Which of the tokens that a call's attention can see are no padding: `[batch total]`, as in `positions_so_far`."""
    tokens = call.kwargs.get("input_ids", call.args[0] if call.args else None)
    if tokens is None:
        tokens = call.kwargs["inputs_embeds"]
    batch, seq = tokens.shape[:2]
    past = _cached(call)
    mask = call.kwargs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] >= past + seq:
        return mask[:, : past + seq] != 0
    if prompts is not None:
        prompts = a_row_each(prompts, batch)
        generated = past + seq - prompts.shape[1]  # the prompt's padding is that of every later pass
        return F.pad(prompts.to(tokens.device) != 0, (0, generated), value=True)
    return torch.ones(batch, past + seq, dtype=torch.bool, device=tokens.device)


def counted(real: Tensor) -> Tensor:
    """The positions of tokens of which it is known which are real."""
    return torch.where(real, real.long().cumsum(dim=1) - 1, -1)


def a_row_each(prompts: Tensor, batch: int) -> Tensor:
    """What is known of each prompt, for each row of a pass: beams and several samples of a prompt stand side by
    side."""
    return prompts.repeat_interleave(batch // len(prompts), dim=0)


def _cached(call: Call) -> int:
    for name in ("cache", "past_key_values"):
        cache = call.kwargs.get(name)
        if cache is not None:
            return int(cache.get_seq_length())
    return 0


def selected(positions: Positions, where: Tensor, prompts: Tensor) -> Tensor:
    """Which of the tokens at `where` (`[batch total]`) are meant, given the rows' prompt lengths (`[batch]`)."""
    real = where >= 0
    ends = prompts.to(where.device)[:, None]
    if positions is None or positions == "all":
        return real
    if positions == "prompt":
        return real & (where < ends)
    if positions == "new":
        return real & (where >= ends)
    if isinstance(positions, NewToken):
        return real & (where == ends + positions)
    if isinstance(positions, slice):
        start = 0 if positions.start is None else positions.start
        chosen = where >= _from_end(start, ends)
        if positions.stop is not None:
            chosen = chosen & (where < _from_end(positions.stop, ends))
        if positions.step not in (None, 1):
            chosen = chosen & ((where - _from_end(start, ends)) % positions.step == 0)
        return real & chosen
    numbers = positions if isinstance(positions, Sequence) else [positions]
    chosen = torch.zeros_like(real)
    for number in numbers:
        chosen = chosen | (where == _from_end(int(number), ends))
    return real & chosen


def _from_end(number: int, ends: Tensor) -> Tensor:
    return ends + number if number < 0 else torch.full_like(ends, number)


def token_axis(value: Value) -> int | None:
    """The axis of a value along which its tokens lie; None where it has none."""
    for name in ("seq", "query"):
        if name in value.layout.axes:
            return value.layout.axes.index(name)
    return None


def put_at(old: Tensor, new: Tensor, axis: int, chosen: Tensor) -> Tensor:
    """`new` at the chosen tokens and `old` at the others; a value may hold only the last tokens of `chosen`."""
    chosen = chosen[:, -old.shape[axis] :].to(old.device)
    shape: list[int] = [1] * old.ndim
    shape[0], shape[axis] = chosen.shape
    return torch.where(chosen.view(shape), new, old)
