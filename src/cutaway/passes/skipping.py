"""What a module that is passed over returns in its own stead."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cutaway.subject.address import Address
from cutaway.subject.survey import Survey
from cutaway.tracing.trial import BATCH, SEQ


def in_its_stead(survey: Survey, leave: Address, argument: Any, output: Any) -> Any:
    """`output`, or a module's first argument where it is None, in the kind of container that the module returns.

    Raises:
        ShapeError, DtypeError, DeviceError: it is not like what the module would have returned.
    """
    output = argument if output is None else output
    surveyed = survey.passing.get((leave.module_path, leave.moment))
    if isinstance(output, tuple):
        return output
    leave.fit(_like_returned(surveyed, argument), output)
    if isinstance(surveyed, tuple):
        return (output, *(None for _ in surveyed[1:]))
    return output


def _like_returned(surveyed: Any, argument: Any) -> Tensor | None:
    """A tensor like the one that a module would return for this argument; None where that is not known."""
    returned = surveyed[0] if isinstance(surveyed, tuple) and surveyed else surveyed
    if not isinstance(returned, Tensor) or not isinstance(argument, Tensor) or returned.shape[:2] != (BATCH, SEQ):
        return None
    dtype = argument.dtype if argument.is_floating_point() else returned.dtype
    return argument.new_empty((*argument.shape[:2], *returned.shape[2:]), dtype=dtype)
