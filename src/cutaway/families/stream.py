"""Of what a block's output is the sum, as an expression.

A sum is a tuple of terms, added from left to right, as floating point asks. A term is the name of a value, a sum that
is made first, a term times a constant: `times("attention_output", "residual_multiplier")`, or a term as a norm of the
layer returns it: `normed(("layer_input", "attention_output"), "ln_1")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Times:
    """A term times a factor: a number, what the config has under a key, or `learned`, the layer's own parameter or
    buffer of that name."""

    term: Term
    by: float | str
    learned: bool = False


@dataclass(frozen=True)
class Normed:
    """A term as a norm returns it, the layer's own module at the path `by`."""

    term: Term
    by: str


Term: TypeAlias = "str | Times | Normed | tuple[Term, ...]"
"""A value's name, a term times a factor or normed, or a sum of terms."""

Sum = tuple[Term, ...]
"""Terms, added from left to right; none where no sum holds."""


def times(term: Term, by: float | str, *, learned: bool = False) -> Times:
    """A term times a number, or times what the config has under a key."""
    return Times(term, by, learned)


def normed(term: Term, by: str) -> Normed:
    """A term as the layer's norm at a path returns it."""
    return Normed(term, by)


def names_in(term: Term) -> Iterator[str]:
    """The names of the values in an expression, in order."""
    if isinstance(term, str):
        yield term
    elif isinstance(term, (Times, Normed)):
        yield from names_in(term.term)
    else:
        for part in term:
            yield from names_in(part)


def norms_in(term: Term) -> Iterator[Normed]:
    """The norms in an expression, the outermost first."""
    if isinstance(term, Normed):
        yield term
    if isinstance(term, (Times, Normed)):
        yield from norms_in(term.term)
    elif isinstance(term, tuple):
        for part in term:
            yield from norms_in(part)


def factor_of(name: str, term: Term) -> float:
    """By which constant a value is multiplied before it is added; learned ones and norms are not counted."""
    if isinstance(term, Normed):
        return factor_of(name, term.term)
    if isinstance(term, Times):
        own = 1.0 if term.learned else float(term.by)
        return own * factor_of(name, term.term)
    if isinstance(term, str):
        return 1.0
    return next((factor_of(name, part) for part in term if name in names_in(part)), 1.0)


def with_numbers(term: Any, config: Any) -> Any:
    """The same expression, or none, with the numbers that a config has under its keys; a factor of 1 is left out."""
    if term is None:
        return None
    if isinstance(term, Times):
        number = getattr(config, term.by) if isinstance(term.by, str) and not term.learned else term.by
        inner = with_numbers(term.term, config)
        return inner if number == 1 else Times(inner, number, term.learned)
    if isinstance(term, Normed):
        return Normed(with_numbers(term.term, config), term.by)
    if isinstance(term, str):
        return term
    return tuple(with_numbers(part, config) for part in term)


def add_up(term: Term, value: Callable[[str], Tensor], own: Callable[[str], Any]) -> Tensor:
    """What an expression comes to, in its own order.

    Args:
        term: the expression.
        value: gives a value by its name.
        own: gives what the layer holds at a path: a parameter, a buffer, a norm.
    """
    if isinstance(term, str):
        return value(term)
    if isinstance(term, Times):
        by: Any = own(str(term.by)) if term.learned else term.by
        return add_up(term.term, value, own) * by
    if isinstance(term, Normed):
        return own(term.by)(add_up(term.term, value, own))
    total = add_up(term[0], value, own)
    for part in term[1:]:
        total = total + add_up(part, value, own)
    return total


def told(term: Term) -> str:
    """An expression as it is written: `layer_input + 0.22 × attention_output`."""
    if isinstance(term, str):
        return term
    if isinstance(term, Times):
        inner = told(term.term) if isinstance(term.term, str) else f"({told(term.term)})"
        return f"{term.by if isinstance(term.by, str) else f'{term.by:g}'} × {inner}"
    if isinstance(term, Normed):
        return f"{term.by}({told(term.term)})"
    return " + ".join(f"({told(part)})" if isinstance(part, tuple) else told(part) for part in term)


def up_to(name: str, total: Sum) -> Term | None:
    """The sum of what is added before a value; None where that is no sum by itself.

    In the order of floating point: of `(layer_input, attention_output, mlp_output)` it is the first two.
    """
    if not total or name not in tuple(names_in(total)):
        return None
    if len(total) == 1 and isinstance(total[0], Normed):
        inner = total[0].term
        return up_to(name, inner) if isinstance(inner, tuple) else None
    *before, last = total
    if isinstance(last, tuple) or name not in names_in(last):
        inner = [part for part in total if isinstance(part, tuple) and name in names_in(part)]
        rest = [part for part in total if part not in inner]
        return rest[0] if len(rest) == 1 and len(total) == 2 and isinstance(rest[0], tuple) else None
    return tuple(before) if len(before) > 1 else before[0]
