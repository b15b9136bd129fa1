"""A layer's identity, in words and in symbols, from its wiring."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.shapes import MlpShape
from cutaway.encyclopedia.wiring import STREAM, Wiring
from cutaway.families.stream import Term, Times

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
    return " + ".join(f"({_words(part)})" if isinstance(part, tuple) else _words(part) for part in term)


def _factor(term: Times) -> str:
    return f"`{term.by}`" if isinstance(term.by, str) else f"{term.by:g}"


def in_symbols(kind: LayerKind) -> list[str]:
    """The same as equations, in HTML: `x` enters, `y` leaves, `m` is between, `N` is a norm."""
    wiring = kind.wiring
    if not wiring.stream:
        return []
    terms = _symbols(kind)
    if len(wiring.stages) != 2:
        return [f"{_Y} = {_sum(wiring.stream, terms)}"]
    *first, last = wiring.stream
    second = {branch.value for branch in wiring.stages[1].branches}
    if {last if isinstance(last, str) else getattr(last, "term", "")} != second:
        return [f"{_Y} = {_sum(wiring.stream, terms)}"]
    return [f"{_MID} = {_sum(tuple(first), terms)}", f"{_Y} = {_MID} + {_sum((last,), terms)}"]


def _symbols(kind: LayerKind) -> dict[str, str]:
    """Each term as what it is of the stream that its sublayer reads."""
    wiring = kind.wiring
    norms: list[str] = []
    for branch in wiring.branches:
        norms += [norm for norm in (branch.norm, branch.after) if norm and norm not in norms]

    def norm(key: str, inner: str) -> str:
        if not key:
            return inner
        number = f"<sub>{norms.index(key) + 1}</sub>" if len(norms) > 1 else ""
        return f"N{number}({inner})"

    terms = {STREAM: _X}
    for place, stage in enumerate(wiring.stages):
        for branch in stage.branches:
            inner = norm(branch.norm, _MID if place else _X)
            terms[branch.value] = norm(branch.after, f"{_name(kind, branch.host)}({inner})")
    return terms


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
