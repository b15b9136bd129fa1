"""A block's identity, in words and in symbols, from its wiring."""

from __future__ import annotations

from cutaway.encyclopedia.diagram.block import Wiring

_X, _Y = "<var>x</var>", "<var>y</var>"
_MID = "<var>m</var>"


def in_words(wiring: Wiring) -> str:
    """The sum in standard names, in its true order."""
    return " + ".join(f"`{term}`" for term in wiring.stream) + " = `layer_output`"


def in_symbols(wiring: Wiring) -> list[str]:
    """The same as equations, in HTML: `x` enters, `y` leaves, `m` is between, `N` is a norm."""
    if wiring.parallel:
        one = wiring.attention_norm == wiring.mlp_norm
        norms = ("N", "N") if one else ("N<sub>1</sub>", "N<sub>2</sub>")
        terms = {
            "attention_output": f"Attn({norms[0]}({_X}))",
            "mlp_output": f"MLP({norms[1]}({_X}))",
            "layer_input": _X,
        }
        return [f"{_Y} = {' + '.join(terms[term] for term in wiring.stream)}"]
    first, second, _ = wiring.stream
    terms = {"attention_output": f"Attn(N<sub>1</sub>({_X}))", "layer_input": _X}
    return [f"{_MID} = {terms[first]} + {terms[second]}", f"{_Y} = {_MID} + MLP(N<sub>2</sub>({_MID}))"]


def told(wiring: Wiring) -> str:
    """What the order of the sum means, in a sentence."""
    if wiring.parallel and wiring.stream[-1] == "layer_input":
        return (
            "Brackets matter in floating point: the two sublayers are added to each other first and the stream comes "
            "last. In this order the sum is exact, bit for bit; in another it is off by rounding."
        )
    return (
        "Brackets matter in floating point: the terms are added from left to right. In this order the sum is exact, "
        "bit for bit; in another it is off by rounding."
    )
