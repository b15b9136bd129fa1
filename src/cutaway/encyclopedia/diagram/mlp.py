"""Inside an MLP, from its input to its output, and inside one of experts: entered at the middle of its top, left at
that of its bottom."""

from __future__ import annotations

from cutaway.encyclopedia.diagram.canvas import Canvas
from cutaway.encyclopedia.shapes import MlpShape

_PAD = 14


def mlp_width(canvas: Canvas, shape: MlpShape) -> float:
    """How wide an MLP is drawn."""
    if shape.kind != "experts":
        return 204
    return 344 if canvas.has("mlp.shared_expert") else 204


def draw_mlp(canvas: Canvas, shape: MlpShape, x: float, top: float) -> float:
    """Draws the MLP around `x`; returns where it ends."""
    width = mlp_width(canvas, shape)
    if shape.kind == "experts":
        bottom = _experts(canvas, shape, x, top, width) + _PAD
    else:
        draw = {"gated": _gated, "fused gate": _fused}.get(shape.kind, _plain)
        bottom = _down(canvas, x, draw(canvas, shape, x, top)) + _PAD
    canvas.container("layer.mlp", x - width / 2, top, width, bottom - top)
    return bottom


def _down(canvas: Canvas, x: float, y: float) -> float:
    """From the neurons through the down projection."""
    if canvas.has("mlp_neurons"):
        canvas.pill("mlp_neurons", x, y)
        y += 9
    canvas.wire((x, y), (x, y + 10), arrow=True)
    canvas.box("mlp.down_proj", x, y + 23)
    canvas.wire((x, y + 36), (x, y + 36 + _PAD))
    return y + 36


def _plain(canvas: Canvas, shape: MlpShape, x: float, top: float) -> float:
    y = top + 43
    canvas.wire((x, top), (x, y), arrow=True)
    if shape.first:
        canvas.box(shape.first, x, y + 13)
        canvas.wire((x, y + 26), (x, y + 42), arrow=True)
        y += 42
    return _activated(canvas, x, y)


def _activated(canvas: Canvas, x: float, y: float) -> float:
    """From where an activation begins to the neurons: the module, where it is one, and its output."""
    if canvas.has("mlp.act_fn"):
        canvas.box("mlp.act_fn", x, y + 13)
        y += 26
    end = y + (37 if canvas.has("mlp_activation") else 22)
    canvas.wire((x, y), (x, end - 4))
    canvas.pill("mlp_activation", x, y + 16)
    return end


def _gated(canvas: Canvas, shape: MlpShape, x: float, top: float) -> float:
    y = top + 56
    canvas.wire((x, top), (x, y - 22))
    for name, place in (("gate_proj", x - 46), ("up_proj", x + 46)):
        canvas.wire((x, y - 22), (place, y - 22), (place, y - 13), arrow=True)
        canvas.box(f"mlp.{name}", place, y, width=82)
    return _product(canvas, x, y + 13)


def _fused(canvas: Canvas, shape: MlpShape, x: float, top: float) -> float:
    canvas.wire((x, top), (x, top + 43), arrow=True)
    canvas.box(shape.first, x, top + 56, width=174)
    return _product(canvas, x, top + 69)


def _product(canvas: Canvas, x: float, y: float) -> float:
    """From gate and up projection, which end at `y`, to the neurons."""
    gate, up, joined = x - 46, x + 46, y + 81
    canvas.wire((gate, y), (gate, y + 16), arrow=True)
    canvas.box("mlp.act_fn", gate, y + 29)
    canvas.wire((gate, y + 42), (gate, joined), (x - 11, joined), arrow=True)
    canvas.pill("mlp_activation", gate, y + 59)
    canvas.wire((up, y), (up, joined), (x + 11, joined), arrow=True)
    canvas.operation("mlp.product", x, joined, "×")
    canvas.wire((x, joined + 11), (x, joined + 26))
    return joined + 29


def _experts(canvas: Canvas, shape: MlpShape, x: float, top: float, width: float) -> float:
    """The router to the left, the experts below it; the expert that every token goes through to the right."""
    shared = canvas.has("mlp.shared_expert")
    left = x - 74 if shared else x
    right = x + 94
    bus = top + 34
    routed = _routed(canvas, left, x, bus, top)
    if not shared:
        canvas.wire((x, routed), (x, routed + _PAD))
        return routed
    place, y = _shared(canvas, shape, right, x, bus)
    total = max(routed, y) + 14
    canvas.wire((left, routed), (left, total), (x - 11, total), arrow=True)
    canvas.wire((place, y), (place, total), (x + 11, total), arrow=True)
    canvas.operation("mlp.sum", x, total, "+")
    canvas.wire((x, total + 11), (x, total + 11 + _PAD))
    return total + 11


def _routed(canvas: Canvas, left: float, x: float, bus: float, top: float) -> float:
    """From the input through router and experts; returns where what they give ends."""
    y = bus + 9
    choose, feed = left - 30, left + 62
    canvas.wire((x, top), (x, bus))
    canvas.wire((x, bus), (choose, bus), (choose, y), arrow=True)
    if canvas.has("mlp.router"):
        canvas.box("mlp.router", choose, y + 13, width=76)
    canvas.wire((choose, y + 26), (choose, y + 50), arrow=True)
    if canvas.has("router_logits"):
        canvas.pill("router_logits", choose, y + 37)
    canvas.operation("mlp.choice", choose, y + 61, "choose", width=64)
    chosen = [value for value in ("expert_indices", "expert_weights") if canvas.has(value)]
    end = y + 72 + 21 * len(chosen) + 17
    canvas.wire((choose, y + 72), (choose, end), arrow=True)
    for i, value in enumerate(chosen):
        canvas.pill(value, choose, y + 87 + 21 * i)
    canvas.wire((x, bus), (feed, bus), (feed, end), arrow=True)
    canvas.box("mlp.experts", left, end + 13, width=150)
    y = end + 26
    if canvas.has("routed_output"):
        canvas.wire((left, y), (left, y + 26))
        canvas.pill("routed_output", left, y + 17)
        y += 26
    return y


def _shared(canvas: Canvas, shape: MlpShape, right: float, x: float, bus: float) -> tuple[float, float]:
    """Through the shared expert, times its gate where it has one; returns where it ends."""
    y = bus + 9
    if not shape.shared_gate:
        canvas.wire((x, bus), (right, bus), (right, y), arrow=True)
        return right, _given(canvas, right, y)
    beside, place = right - 74, right - 8
    canvas.wire((x, bus), (right, bus), (right, y), arrow=True)
    canvas.box(shape.shared_gate, right, y + 13)
    canvas.wire((x, bus), (beside, bus), (beside, y + 38), (place, y + 38), (place, y + 52), arrow=True)
    end = _given(canvas, place, y + 52)
    product = end + 27
    canvas.wire((right + 60, y + 26), (right + 60, product), (place + 11, product), arrow=True)
    canvas.wire((place, end), (place, product - 11), arrow=True)
    canvas.operation("mlp.gate", place, product, "×")
    return place, product + 11


def _given(canvas: Canvas, x: float, y: float) -> float:
    """The shared expert and its output."""
    canvas.box("mlp.shared_expert", x, y + 13)
    if not canvas.has("shared_expert_output"):
        return y + 26
    canvas.wire((x, y + 26), (x, y + 52))
    canvas.pill("shared_expert_output", x, y + 43)
    return y + 52
