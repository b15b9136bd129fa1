"""The order of a pass: what is asked for too late, or never comes, is an error that says so."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from cutaway.errors import LateEditError, OrderError
from cutaway.sites import OperationMoment
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject
from cutaway.tracing.source import innermost, source_of


def refuse_if_passed(
    subject: Subject,
    address: Address,
    here: Address,
    error: type[OrderError],
    *,
    finished: bool,
    sourced: Collection[nn.Module],
) -> None:
    """Raises where a pass is behind an address already.

    Args:
        subject: the model.
        address: what is asked for.
        here: where the pass waits, or was last.
        error: the kind of error, which tells an edit from a question too.
        finished: whether the pass is at its end.
        sourced: the modules whose forward's own calls are watched since before they began.

    Raises:
        OrderError, LateEditError: naming both places.
    """
    unseen = isinstance(address.moment, OperationMoment) and address.module not in sourced
    if unseen and _is_inside(subject, address.module_path, here):
        raise error(
            f"the pass is at {here.describe()}, inside the forward that makes the call `{address.path}`, and none "
            "of its calls was asked for before it began. Ask for one of them, or for the module's own `input`, "
            "first."
        )
    if finished or _comes_before(subject, address, here):
        verb = "edit" if error is LateEditError else "ask for"
        raise error(
            f"the pass is already at {here.describe()}, and {address.describe()} comes before it. "
            f"Values come in the order of the forward pass: {verb} `{address.path}` first, then `{here.path}`."
        )


def never_reached(address: Address, before: Address | None) -> OrderError:
    """The error for an address that the pass did not come by; it waited at `before` when it was asked for."""
    return OrderError(
        f"the pass ended without reaching {address.describe()}. Either this call does not use it, or it ran "
        f"before {before.describe() if before else 'the first value asked for'}, or the module was exchanged "
        "after the model was opened: then open it again."
    )


def _comes_before(subject: Subject, one: Address, other: Address) -> bool:
    """Whether a pass is certainly past `one` when it waits at `other`."""
    now = other.rank
    if not isinstance(one.moment, OperationMoment):
        return one.rank is not None and now is not None and one.rank < now
    if isinstance(other.moment, OperationMoment) and one.module is other.module:
        return _operation_rank(one) < _operation_rank(other)
    left = subject.rank_at(one.module_path, "exit")
    return left is not None and now is not None and left <= now


def _is_inside(subject: Subject, module_path: str, here: Address) -> bool:
    """Whether a pass that waits at `here` is inside a module's forward."""
    start, now, end = (
        subject.rank_at(module_path, "enter"),
        here.rank,
        subject.rank_at(module_path, "exit"),
    )
    return start is not None and now is not None and end is not None and start < now < end


def _operation_rank(address: Address) -> tuple[int, ...]:
    """The place of a call in the order in which a forward makes its calls."""
    assert isinstance(address.moment, OperationMoment)
    source = source_of(innermost(type(address.module).forward))
    index = source[address.moment.chain[0]].index
    return (index, int(address.moment.edge == "exit" and len(address.moment.chain) == 1))
