"""A layer's identity, in words and in symbols, from its wiring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.shapes import MlpShape
from cutaway.encyclopedia.wiring import STREAM, Wiring, norm_key
from cutaway.families.stream import Normed, Term, Times, names_in

_X, _Y = "<var>x</var>", "<var>y</var>"
_MID = "<var>m</var>"


def in_words(wiring: Wiring) -> str:
    """The sum in standard names, in its true order; where there is none, why."""
    if not wiring.stream:
        return wiring.no_sum
    return f"{_words(wiring.stream)} = `layer_output`"


def _words(term: Term) -> str:
    if isinstance(term, str):
        return f"`{term}`"
    if isinstance(term, Times):
        inner = _words(term.term)
        return f"{_factor(term)} × {inner if isinstance(term.term, str) else f'({inner})'}"
    if isinstance(term, Normed):
        return f"`{term.by}`({_words(term.term)})"
    return " + ".join(f"({_words(part)})" if isinstance(part, tuple) else _words(part) for part in term)


def _factor(term: Times) -> str:
    return f"`{term.by}`" if isinstance(term.by, str) else f"{term.by:g}"


def in_symbols(kind: LayerKind) -> list[str]:
    """The same as equations, in HTML: `x` enters, `y` leaves, `m` is between, `N` is a norm."""
    wiring = kind.wiring
    if not wiring.stream:
        return []
    terms = _symbols(kind)
    first = {STREAM, *(branch.value for branch in wiring.stages[0].branches)}
    found = _apart(wiring.stream, first) if len(wiring.stages) == 2 else None
    if found is None:
        return [f"{_Y} = {_sum(wiring.stream, terms)}"]
    middle, rest = found
    return [f"{_MID} = {_sum(middle, terms)}", f"{_Y} = {_sum(rest, terms)}"]


def _apart(term: Term, names: set[str]) -> tuple[Term, Term] | None:
    """The part of an expression in which these values are, and the whole with `m` in its place."""
    if isinstance(term, str):
        return None
    if set(names_in(term)) == names:
        return term, _MIDDLE
    if isinstance(term, (Times, Normed)):
        found = _apart(term.term, names)
        return None if found is None else (found[0], replace(term, term=found[1]))
    for count in range(2, len(term)):
        if set(names_in(term[:count])) == names:
            return term[:count], (_MIDDLE, *term[count:])
    for place, part in enumerate(term):
        found = _apart(part, names)
        if found is not None:
            return found[0], (*term[:place], found[1], *term[place + 1 :])
    return None


_MIDDLE = "layer_mid"


def _symbols(kind: LayerKind) -> dict[str, str]:
    """Each term as what it is of the stream that its sublayer reads."""
    wiring = kind.wiring
    norms = _norms(kind)

    def norm(key: str, inner: str) -> str:
        return f"{norms[key]}({inner})" if key else inner

    terms = {STREAM: _X, _MIDDLE: _MID, **norms}
    for place, stage in enumerate(wiring.stages):
        for branch in stage.branches:
            inner = norm(branch.norm, _MID if place else _X)
            terms[branch.value] = norm(branch.after, f"{_name(kind, branch.host)}({inner})")
    return terms


def _norms(kind: LayerKind) -> dict[str, str]:
    """What each norm is called: `N` where there is one, else numbered in the order of a pass."""
    found: list[str] = []
    for stage in kind.wiring.stages:
        for branch in stage.branches:
            found += [norm for norm in (branch.norm, branch.after) if norm]
        found += [addition.norm for addition in stage.additions if addition.norm]
    keys = list(dict.fromkeys(found))
    return {key: f"N<sub>{place}</sub>" if len(keys) > 1 else "N" for place, key in enumerate(keys, 1)}


def _name(kind: LayerKind, host: str) -> str:
    shape = kind.shapes[host]  # pyright: ignore[reportArgumentType]  # a branch's host is one
    if isinstance(shape, MlpShape) and shape.kind == "experts":
        return "Experts"
    return {"attention": "Attn", "mixer": "Mix", "mlp": "MLP"}[host]


def _sum(term: Term, terms: dict[str, str]) -> str:
    if isinstance(term, str):
        return terms[term]
    if isinstance(term, Times):
        inner = _sum(term.term, terms)
        by = f"<var>{term.by}</var>" if isinstance(term.by, str) else f"{term.by:g}"
        return f"{by} · {inner if isinstance(term.term, str) else f'({inner})'}"
    if isinstance(term, Normed):
        return f"{terms[norm_key(term)]}({_sum(term.term, terms)})"
    return " + ".join(f"({_sum(part, terms)})" if isinstance(part, tuple) else _sum(part, terms) for part in term)


def told(kinds: Sequence[LayerKind]) -> str:
    """What the order of the sum means, in a sentence."""
    if not all(kind.wiring.stream for kind in kinds):
        return "No sum of this output was found to hold, so none is claimed."
    streams = [kind.wiring.stream for kind in kinds if kind.wiring.parallel]
    if len(kinds) == 1 and streams and len(streams[0]) == 3 and streams[0][-1] == STREAM:
        return (
            "Brackets matter in floating point: the two sublayers are added to each other first and the stream comes "
            "last. In this order the sum is exact, bit for bit; in another it is off by rounding."
        )
    if any(len(kind.wiring.stream) > 2 for kind in kinds):
        return (
            "Brackets matter in floating point: the terms are added from left to right. In this order the sum is "
            "exact, bit for bit; in another it is off by rounding."
        )
    return "The sum is exact, bit for bit."
