"""Inside a token mixer that is no attention: entered at the middle of its top, left at that of its bottom."""

from __future__ import annotations

from cutaway.encyclopedia.diagram.canvas import Canvas, width_of
from cutaway.encyclopedia.shapes import MixerShape

_PAD = 14
_GAP = 12


def mixer_width(canvas: Canvas, shape: MixerShape) -> float:
    """How wide a mixer is drawn."""
    return max(204, _across(canvas, shape.before) + 28)


def _across(canvas: Canvas, keys: tuple[str, ...]) -> float:
    return sum(width_of(canvas.part(key).name) for key in keys) + _GAP * max(0, len(keys) - 1)


def draw_mixer(canvas: Canvas, shape: MixerShape, x: float, top: float) -> float:
    """Draws the mixer around `x`; returns where it ends."""
    y = _projections(canvas, shape.before, x, top)
    for key in (shape.conv, *(["mixer.recurrence"] if shape.recurs else []), *shape.after, "mixer.out_proj"):
        if not canvas.has(key):
            continue
        canvas.wire((x, y), (x, y + 16), arrow=True)
        if key == "mixer.recurrence":
            canvas.operation(key, x, y + 27, "recurrence", width=92)
            y += 38
        else:
            canvas.box(key, x, y + 29)
            y += 42
        value = {shape.conv: "conv_output", "mixer.recurrence": "ssm_output"}.get(key, "")
        if canvas.has(value):
            canvas.wire((x, y), (x, y + 22))
            canvas.pill(value, x, y + 15)
            y += 22
    canvas.wire((x, y), (x, y + _PAD))
    width = mixer_width(canvas, shape)
    canvas.container("layer.mixer", x - width / 2, top, width, y + _PAD - top)
    return y + _PAD


def _projections(canvas: Canvas, keys: tuple[str, ...], x: float, top: float) -> float:
    """The projections that feed the mixer, side by side; returns where they end."""
    y, bus = top + 56, top + 34
    left = x - _across(canvas, keys) / 2
    if not keys:
        canvas.wire((x, top), (x, top + 30))
        return top + 30
    canvas.wire((x, top), (x, bus))
    for key in keys:
        width = width_of(canvas.part(key).name)
        place = left + width / 2
        points = [(x, bus), (x, y - 13)] if place == x else [(x, bus), (place, bus), (place, y - 13)]
        canvas.wire(*points, arrow=True)
        canvas.box(key, place, y, width=width)
        if place != x:
            canvas.wire((place, y + 13), (place, y + 26), (x, y + 26))
        left += width + _GAP
    if len(keys) == 1:
        return y + 13
    canvas.wire((x, y + 26), (x, y + 30))
    return y + 26
