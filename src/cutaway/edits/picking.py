"""Values at positions: the places of the tokens in a padded row, and a value's part that belongs to them."""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway.edits.positions import Choice, RowByRow, along, numbers_of, selected, token_axis
from cutaway.edits.rows import Rows
from cutaway.errors import InputError
from cutaway.vocabulary import LAYOUTS, Value


def at_positions(value: Value, tensor: Tensor, choice: Choice, rows: Rows) -> Tensor:
    """The part of a value that belongs to the tokens at these positions, as a tensor of its own.

    One position takes the axis of tokens away, as an index does; several leave it, in the order given. A pattern's axis
    is that of its queries.

    Raises:
        InputError: a row has no such position, or the rows have different numbers of tokens at them.
    """
    axis = token_axis(value)
    assert axis is not None
    places = places_in_rows(choice, rows, value, tensor.shape[axis]).to(tensor.device)
    each = torch.arange(len(places), device=tensor.device)[:, None]
    picked = tensor.movedim(axis, 1)[each, places]
    return picked[:, 0] if isinstance(choice, int) else picked.movedim(1, axis)


def index_of(choice: Choice, rows: Rows, value: Value) -> tuple[Tensor, Tensor]:
    """What a `[batch seq …]` value is indexed by to give its part at these positions: the rows, and the places in them,
    `[batch]` for one position and `[batch count]` for several. On the meta device no row counts as padded."""
    if rows.where.is_meta:
        batch, total = rows.where.shape
        rows = rows._replace(where=torch.arange(total).expand(batch, -1), ends=torch.full((batch,), total))
    places = places_in_rows(choice, rows, value, rows.own)
    each = torch.arange(len(places), device=places.device)
    return (each, places[:, 0]) if isinstance(choice, int) else (each[:, None], places)


def places_in_rows(choice: Choice, rows: Rows, value: Value, length: int) -> Tensor:
    """The places of the tokens at these positions along a value's axis of tokens: `[batch count]`."""
    where = along(rows.where, value, length, rows)
    numbers = numbers_of(choice, rows)
    if numbers is None:
        chosen = along(selected(choice, rows), value, length, rows)
        return _as_many_each(chosen, choice)
    found = where[:, None, :] == numbers[:, :, None]
    if not bool(found.any(dim=2).all()):
        row, place = (int(i) for i in (~found.any(dim=2)).nonzero()[0])
        raise InputError(_missing(choice, rows, where, row, place, value))
    return found.long().argmax(dim=2)


def _as_many_each(chosen: Tensor, choice: Choice) -> Tensor:
    counts: list[int] = chosen.sum(dim=1).tolist()
    if len(set(counts)) > 1:
        raise InputError(
            f"the rows have different numbers of tokens at positions {choice!r}: {counts}, which is no one tensor. "
            "Count from the end (slice(-3, None)), give as many for each row, or read the rows one by one."
        )
    if not counts[0]:
        raise InputError(f"the rows have no token at positions {choice!r}.")
    return chosen.nonzero()[:, 1].view(len(chosen), -1)


def _missing(choice: Choice, rows: Rows, where: Tensor, row: int, place: int, value: Value) -> str:
    given: tuple[int, ...] = ()
    if isinstance(choice, RowByRow):
        given = choice[row // (len(where) // len(choice))]
    elif isinstance(choice, int):
        given = (choice,)
    elif isinstance(choice, tuple):
        given = choice
    number = given[place] if place < len(given) else None
    if number is None:
        return "several positions for each row must be as many for each; read the rows one by one."
    length = int((rows.where[row] >= 0).sum())
    position = number + int(rows.ends[row]) if number < 0 else number
    if value.layout == LAYOUTS["Logits"] and rows.kept is not None and 0 <= position < length:
        return (
            f"the logits at position {number} of row {row} are not computed: the call says logits_to_keep. Leave it "
            "out, or say logits_to_keep=0 for all."
        )
    if 0 <= position < length:
        return f"position {number} of row {row} is in the cache, and this pass does not run it."
    return f"row {row} has no position {number}: it has {length} token{'s' if length != 1 else ''}, the first at 0."
