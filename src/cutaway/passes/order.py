"""The order of a pass: what is asked for too late, or never comes, is an error that says so."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from cutaway.errors import LateEditError, OrderError
from cutaway.sites import OperationMoment
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject


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
    if unseen and subject.is_inside(address.module_path, here):
        raise error(
            f"the pass is at {here.describe()}, inside the forward that makes the call `{address.path}`, and none "
            "of its calls was asked for before it began. Ask for one of them, or for the module's own `input`, "
            "first."
        )
    if finished or subject.comes_before(address, here):
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
