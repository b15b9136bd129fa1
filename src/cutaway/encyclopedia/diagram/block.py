"""One block around the residual stream: side by side or one after the other, its sums in their true order."""

from __future__ import annotations

from dataclasses import dataclass

from cutaway.encyclopedia.diagram.canvas import Canvas
from cutaway.encyclopedia.diagram.sublayers import ATTENTION_WIDTH, MLP_WIDTH, Shape, draw_attention, draw_mlp

STREAM = 62
"""Where the residual stream runs."""

_LEFT = 112
_GAP = 20


@dataclass(frozen=True)
class Wiring:
    """How a block is wired.

    Attributes:
        parallel: whether attention and MLP stand side by side.
        attention_norm: the norm that the attention reads, as a part.
        mlp_norm: the norm that the MLP reads; the same part where one norm feeds both.
        stream: the terms of `layer_output`, in the order in which they are added.
    """

    parallel: bool
    attention_norm: str
    mlp_norm: str
    stream: tuple[str, ...]


def width_of(wiring: Wiring) -> float:
    """How wide the block is, from the sheet's edge to its last column's."""
    return _LEFT + ATTENTION_WIDTH + (_GAP + MLP_WIDTH if wiring.parallel else 0) + 16


def draw_block(canvas: Canvas, wiring: Wiring, shape: Shape, top: float) -> float:
    """Draws the block from `top` on; returns where it ends."""
    canvas.tap("layer_input", STREAM, top + 44)
    draw = _side_by_side if wiring.parallel else _one_after_the_other
    end = draw(canvas, wiring, shape, top + 66)
    canvas.tap("layer_output", STREAM, end + 34)
    canvas.wire((STREAM, top), (STREAM, end - 11), arrow=True, kind="stream")
    canvas.wire((STREAM, end + 11), (STREAM, end + 56), kind="stream")
    return end + 56


def _side_by_side(canvas: Canvas, wiring: Wiring, shape: Shape, y: float) -> float:
    attention = _LEFT + ATTENTION_WIDTH / 2
    mlp = _LEFT + ATTENTION_WIDTH + _GAP + MLP_WIDTH / 2
    if wiring.attention_norm == wiring.mlp_norm:
        left, right = attention - 66, mlp + 66
        canvas.wire((STREAM, y + 20), (left, y + 20), arrow=True)
        canvas.box(wiring.attention_norm, (left + right) / 2, y + 20, width=right - left)
        norm_bottom = y + 33
    else:
        canvas.wire((STREAM, y), (attention, y), (attention, y + 25), arrow=True)
        canvas.wire((STREAM, y), (mlp, y), (mlp, y + 25), arrow=True)
        canvas.box(wiring.attention_norm, attention, y + 38)
        canvas.box(wiring.mlp_norm, mlp, y + 38)
        norm_bottom = y + 51
    inside = norm_bottom + 64
    for place in (attention, mlp):
        canvas.wire((place, norm_bottom), (place, inside))
    canvas.pill("attention_norm_output", attention, norm_bottom + 20)
    canvas.pill("mlp_norm_output", mlp, norm_bottom + 20)
    canvas.pill("mlp_input", mlp, norm_bottom + 42)
    attention_end = draw_attention(canvas, shape, attention, inside)
    mlp_end = draw_mlp(canvas, shape, mlp, inside)
    outputs = attention_end + 20
    canvas.pill("attention_output", attention, outputs)
    canvas.pill("mlp_output", mlp, outputs)
    total = outputs + 38
    if wiring.stream[-1] == "layer_input":
        canvas.wire((attention, attention_end), (attention, total - 11), arrow=True)
        canvas.wire((mlp, mlp_end), (mlp, total), (attention + 11, total), arrow=True)
        canvas.wire((attention - 11, total), (STREAM + 11, total), arrow=True)
        _sum(canvas, 1, attention, total)
        _sum(canvas, 2, STREAM, total)
        return total
    canvas.wire((attention, attention_end), (attention, total), (STREAM + 11, total), arrow=True)
    canvas.wire((mlp, mlp_end), (mlp, total + 40), (STREAM + 11, total + 40), arrow=True)
    canvas.wire((STREAM, total), (STREAM, total + 29), arrow=True, kind="stream")
    attention_first = wiring.stream.index("attention_output") < wiring.stream.index("mlp_output")
    _sum(canvas, 1 if attention_first else 2, STREAM, total)
    _sum(canvas, 2 if attention_first else 1, STREAM, total + 40)
    return total + 40


def _one_after_the_other(canvas: Canvas, wiring: Wiring, shape: Shape, y: float) -> float:
    x = _LEFT + ATTENTION_WIDTH / 2
    first = _stage(canvas, wiring.attention_norm, ("attention_norm_output",), x, y)
    first_end = draw_attention(canvas, shape, x, first)
    middle = _back(canvas, "attention_output", x, first_end)
    _sum(canvas, 1, STREAM, middle)
    canvas.tap("layer_mid", STREAM, middle + 34)
    second = _stage(canvas, wiring.mlp_norm, ("mlp_norm_output", "mlp_input"), x, middle + 58)
    second_end = draw_mlp(canvas, shape, x, second)
    end = _back(canvas, "mlp_output", x, second_end)
    _sum(canvas, 2, STREAM, end)
    return end


def _stage(canvas: Canvas, norm: str, values: tuple[str, ...], x: float, y: float) -> float:
    """From the stream through a norm to the entrance of a sublayer, whose place it returns."""
    canvas.wire((STREAM, y), (x, y), (x, y + 22), arrow=True)
    canvas.box(norm, x, y + 35)
    inside = y + 48 + 22 * len(values) + 14
    canvas.wire((x, y + 48), (x, inside))
    for i, value in enumerate(values):
        canvas.pill(value, x, y + 66 + 22 * i)
    return inside


def _back(canvas: Canvas, value: str, x: float, y: float) -> float:
    """From a sublayer's end back to the stream, where the sum is."""
    end = y + 52
    canvas.wire((x, y), (x, end), (STREAM + 11, end), arrow=True)
    canvas.pill(value, x, y + 21)
    return end


def _sum(canvas: Canvas, number: int, x: float, y: float) -> None:
    canvas.operation(f"layer.sum-{number}", x, y, "+")
    canvas.caption(x - 16, y - 12, "1st" if number == 1 else "2nd", "order", "middle")
