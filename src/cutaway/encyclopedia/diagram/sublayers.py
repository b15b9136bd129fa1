"""Inside the two sublayers: attention from its input to its output, and the MLP. Each is entered at the middle of its
top and left at the middle of its bottom."""

from __future__ import annotations

from dataclasses import dataclass

from cutaway.encyclopedia.diagram.canvas import Canvas

ATTENTION_WIDTH = 252
MLP_WIDTH = 204
_PAD = 14


@dataclass(frozen=True)
class Shape:
    """What a family's sublayers are like, as far as it changes how they are drawn.

    Attributes:
        fused: the part that projects to queries, keys and values at once; empty where there are three.
        rotary: what is written on the rotary; empty where there is none.
        first: the part that projects onto the neurons, in an MLP without a gate.
        gated: whether the MLP has a gate.
    """

    fused: str
    rotary: str
    first: str
    gated: bool


def draw_attention(canvas: Canvas, shape: Shape, x: float, top: float) -> float:
    """Draws the attention around `x`; returns where it ends."""
    q, k, v = x - 82, x, x + 82
    y = top + 56
    if shape.fused:
        canvas.wire((x, top), (x, y - 13), arrow=True)
        canvas.box(shape.fused, x, y, width=228)
    else:
        canvas.wire((x, top), (x, y - 13), arrow=True)
        for name, place in (("q_proj", q), ("k_proj", k), ("v_proj", v)):
            if place != x:
                canvas.wire((x, y - 22), (place, y - 22), (place, y - 13), arrow=True)
            canvas.box(f"attention.{name}", place, y, width=66)
    start = y + 13
    y += 38
    if shape.rotary:
        for place in (q, k):
            canvas.wire((place, start), (place, y - 11), arrow=True)
        canvas.operation("attention.rotary", (q + k) / 2, y, shape.rotary, width=k - q + 62)
        canvas.wire((v, start), (v, y))
        start = y
        y += 34
    else:
        y -= 4
    steps = y, y + 21, y + 42
    y += 74
    product, right = x - 41, x + 82
    canvas.wire((q, start), (q, y), (product - 11, y), arrow=True)
    canvas.wire((k, start), (k, y), (product + 11, y), arrow=True)
    for name, place, step in zip(("queries", "keys", "values"), (q + 22, k, v - 20), steps, strict=True):
        canvas.pill(f"attention_{name}", place, step)
    canvas.operation("attention.product", product, y, "·")
    mixed = y + 112
    canvas.wire((product, y + 11), (product, y + 53), arrow=True)
    canvas.pill("attention_scores", product, y + 30)
    canvas.operation("attention.softmax", product, y + 64, "softmax", width=70)
    canvas.wire((product, y + 75), (product, mixed), (x - 11, mixed), arrow=True)
    canvas.pill("attention_probabilities", product + 10, y + 90)
    canvas.wire((right, start), (right, mixed), (x + 11, mixed), arrow=True)
    canvas.operation("attention.mix", x, mixed, "×")
    y = mixed + 76
    canvas.wire((x, mixed + 11), (x, y - 13), arrow=True)
    canvas.pill("attention_head_outputs", x, mixed + 28)
    canvas.pill("attention_premix", x, mixed + 49)
    canvas.pill("head_contributions", x, mixed + 104)
    canvas.box("attention.o_proj", x, y)
    bottom = y + 41 + _PAD
    canvas.wire((x, y + 13), (x, bottom))
    canvas.container("layer.self_attn", x - ATTENTION_WIDTH / 2, top, ATTENTION_WIDTH, bottom - top)
    return bottom


def draw_mlp(canvas: Canvas, shape: Shape, x: float, top: float) -> float:
    """Draws the MLP around `x`; returns where it ends."""
    y = _gate(canvas, x, top) if shape.gated else _plain(canvas, shape, x, top)
    canvas.pill("mlp_neurons", x, y)
    end = y + 32
    canvas.wire((x, y + 9), (x, end - 13), arrow=True)
    canvas.box("mlp.down_proj", x, end)
    bottom = end + 13 + _PAD
    canvas.wire((x, end + 13), (x, bottom))
    canvas.container("layer.mlp", x - MLP_WIDTH / 2, top, MLP_WIDTH, bottom - top)
    return bottom


def _plain(canvas: Canvas, shape: Shape, x: float, top: float) -> float:
    y = top + 56
    canvas.wire((x, top), (x, y - 13), arrow=True)
    canvas.box(shape.first, x, y)
    canvas.wire((x, y + 13), (x, y + 29), arrow=True)
    canvas.box("mlp.act_fn", x, y + 42)
    canvas.wire((x, y + 55), (x, y + 88))
    canvas.pill("mlp_activation", x, y + 71)
    return y + 92


def _gate(canvas: Canvas, x: float, top: float) -> float:
    gate, up = x - 46, x + 46
    y = top + 56
    canvas.wire((x, top), (x, y - 22))
    for name, place in (("gate_proj", gate), ("up_proj", up)):
        canvas.wire((x, y - 22), (place, y - 22), (place, y - 13), arrow=True)
        canvas.box(f"mlp.{name}", place, y, width=82)
    canvas.wire((gate, y + 13), (gate, y + 29), arrow=True)
    canvas.box("mlp.act_fn", gate, y + 42)
    joined = y + 94
    canvas.wire((gate, y + 55), (gate, joined), (x - 11, joined), arrow=True)
    canvas.pill("mlp_activation", gate, y + 72)
    canvas.wire((up, y + 13), (up, joined), (x + 11, joined), arrow=True)
    canvas.operation("mlp.product", x, joined, "×")
    canvas.wire((x, joined + 11), (x, joined + 26))
    return joined + 29
