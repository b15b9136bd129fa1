"""Positions: which tokens of a pass are meant, by their place in their row's whole sequence, padding not counted.

The forms in which they are given, and the tokens that each picks of the rows of a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.edits.rows import Rows, a_row_each
from cutaway.errors import InputError
from cutaway.vocabulary import LAYOUTS, Value
from cutaway.vocabulary.numbers import is_truth_value, whole_number

Positions = str | int | slice | range | Sequence[int] | Sequence[Sequence[int]] | Tensor | None
"""Which tokens: "all" or None, "prompt", "new" (those that were generated), a position, several, a slice of them, or
several for each row, as `model.positions(prompts, text)` gives them.

A negative position counts from the end of the row's prompt.
"""


class NewToken(int):
    """The place of a generated token, counted from the end of the row's prompt."""


class RowByRow(tuple[tuple[int, ...], ...]):
    """Positions of its own for each row."""


Choice = str | int | NewToken | slice | tuple[int, ...] | RowByRow | None
"""Positions in the form in which they are kept: numbers are Python's own."""


def as_choice(positions: Any) -> Choice:
    """Positions as they are kept.

    Raises:
        InputError: `positions` is none of the forms; it says which there are.
    """
    if positions is None or isinstance(positions, (NewToken, RowByRow)):
        return positions
    if isinstance(positions, str):
        if positions in ("all", "prompt", "new"):
            return positions
        raise _no_positions(positions)
    if isinstance(positions, slice):
        return _as_slice(positions)
    if isinstance(positions, (np.ndarray, Tensor)):
        positions = positions.tolist()
    if not isinstance(positions, (Sequence, set, frozenset)):
        return _number(positions, positions)
    items = list(positions)
    if not items:
        raise InputError("no position was given: the list of positions is empty.")
    if all(isinstance(item, (Sequence, np.ndarray)) and not isinstance(item, str) for item in items):
        rows = RowByRow(tuple(_number(number, positions) for number in row) for row in items)
        if not any(rows):
            raise InputError("no position was given: every row's list of positions is empty.")
        return rows
    return tuple(_number(item, positions) for item in items)


def _as_slice(positions: slice) -> slice:
    start, stop, step = (
        None if end is None else _number(end, positions) for end in (positions.start, positions.stop, positions.step)
    )
    if step is not None and step < 1:
        raise InputError(f"a slice of positions goes forward; its step is {step}.")
    return slice(start, stop, step)


def _number(item: Any, positions: Any) -> int:
    if is_truth_value(item):
        raise _no_positions(positions)
    try:
        return index(item)
    except TypeError:
        raise _no_positions(positions) from None


def _no_positions(positions: Any) -> InputError:
    return InputError(
        f"positions are 'all', 'prompt', 'new', a number, several, a slice of them, or several for each row; it was "
        f"given {positions!r}."
    )


def of_step(step: Any) -> Choice:
    """The tokens that are new in a step of a generation: the prompt's in the first, then one in each.

    Raises:
        InputError: steps are whole numbers from 0 on.
    """
    number = whole_number(step, "a step") if not isinstance(step, str) else -1
    if number < 0:
        raise InputError(f"steps count from 0, the pass of the prompt; it was given step={step!r}.")
    return "prompt" if number == 0 else NewToken(number - 1)


def numbers_of(choice: Choice, rows: Rows) -> Tensor | None:
    """The positions that are named one by one, counted from the row's first token: `[batch count]`; a row with fewer
    than another is filled up with `NOWHERE`. None where they are not named so.

    Raises:
        InputError: there are positions for another number of rows than the call has.
    """
    batch = len(rows.where)
    ends = rows.ends.to(rows.where.device)[:, None]
    if isinstance(choice, NewToken):
        return ends + choice
    if isinstance(choice, RowByRow):
        if batch % len(choice):
            raise InputError(f"positions are given for {len(choice)} rows, and the pass has {batch}.")
        longest = max(map(len, choice))
        filled = [[*row, *[NOWHERE] * (longest - len(row))] for row in choice]
        numbers = a_row_each(torch.tensor(filled, device=ends.device), batch)
    elif isinstance(choice, int):
        numbers = torch.tensor([choice], device=ends.device).expand(batch, -1)
    elif isinstance(choice, tuple):
        numbers = torch.tensor(choice, device=ends.device).expand(batch, -1)
    else:
        return None
    counted = torch.where(numbers < 0, ends + numbers, numbers)
    return torch.where((numbers == NOWHERE) | (counted < 0), NOWHERE, counted)


NOWHERE = -(2**40)
"""A number that is no token's position."""


def selected(choice: Choice, rows: Rows) -> Tensor:
    """Which of the tokens are meant: `[batch total]`."""
    where = rows.where
    real = where >= 0
    ends = rows.ends.to(where.device)[:, None]
    if choice is None or choice == "all":
        return real
    if choice == "prompt":
        return real & (where < ends)
    if choice == "new":
        return real & (where >= ends)
    if isinstance(choice, slice):
        start = _from_end(0 if choice.start is None else choice.start, ends)
        chosen = where >= start
        if choice.stop is not None:
            chosen = chosen & (where < _from_end(choice.stop, ends))
        if choice.step not in (None, 1):
            chosen = chosen & ((where - start) % choice.step == 0)
        return real & chosen
    numbers = numbers_of(choice, rows)
    assert numbers is not None
    return real & (where[:, :, None] == numbers[:, None, :]).any(dim=2)


def _from_end(number: int, ends: Tensor) -> Tensor:
    return (ends + number).clamp(min=0) if number < 0 else torch.full_like(ends, number)


def token_axis(value: Value) -> int | None:
    """The axis of a value along which its tokens lie; None where it has none."""
    for name in ("seq", "query"):
        if name in value.layout.axes:
            return value.layout.axes.index(name)
    return None


def along(chosen: Tensor, value: Value, length: int, rows: Rows) -> Tensor:
    """What is known of each token, `[batch total]`, for each place of a value's axis of tokens: `[batch length]`.

    A value holds the pass's own tokens, or all so far; a static cache has room behind them, of which nothing is meant;
    and logits are computed of some only, where the call says so.
    """
    if value.layout == LAYOUTS["Logits"] and rows.kept is not None:
        return chosen[:, -rows.own :][:, rows.kept.to(chosen.device)]
    total = chosen.shape[1]
    if length <= total:
        return chosen[:, total - length :]
    room = chosen.new_full((len(chosen), length - total), False if chosen.dtype == torch.bool else -1)
    return torch.cat([chosen, room], dim=1)


def put_at(old: Tensor, new: Tensor, axis: int, chosen: Tensor) -> Tensor:
    """`new` at the chosen places of an axis, and `old` at the others."""
    shape: list[int] = [1] * old.ndim
    shape[0], shape[axis] = chosen.shape
    return torch.where(chosen.to(old.device).view(shape), new, old)
