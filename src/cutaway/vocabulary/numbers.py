"""Numbers as users give them: Python's, NumPy's, or a tensor that holds one; never a truth value."""

from __future__ import annotations

from operator import index
from typing import Any

from cutaway.errors import InputError


def whole_number(given: Any, what: str) -> int:
    """A whole number as Python's own.

    Raises:
        InputError: it is none; `what` says what it was to be, "a layer" say.
    """
    if not is_truth_value(given):
        try:
            return index(given)
        except TypeError:
            pass
    raise InputError(f"{what} is a whole number; it was given {given!r}.")


def a_factor(given: Any) -> Any:
    """What a vector can be multiplied by: a number, or a tensor of one, which stays in its graph.

    Raises:
        InputError: it is neither.
    """
    if not is_truth_value(given) and not isinstance(given, (str, bytes)):
        if getattr(given, "ndim", None) == 0 and hasattr(given, "requires_grad"):
            return given
        try:
            return float(given)
        except (TypeError, ValueError):
            pass
    raise InputError(f"a factor is a number; it was given {given!r}.")


def is_truth_value(given: Any) -> bool:
    """Whether something is a `bool`, or a tensor or NumPy scalar of them."""
    return isinstance(given, bool) or str(getattr(given, "dtype", "")).endswith("bool")
