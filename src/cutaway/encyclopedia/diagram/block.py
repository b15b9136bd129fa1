"""One layer around the residual stream: its sublayers side by side or one after the other, its sums in their true
order."""

from __future__ import annotations

from collections.abc import Mapping

from cutaway.encyclopedia.diagram.attention import attention_width, draw_attention
from cutaway.encyclopedia.diagram.canvas import Canvas, width_of
from cutaway.encyclopedia.diagram.mixer import draw_mixer, mixer_width
from cutaway.encyclopedia.diagram.mlp import draw_mlp, mlp_width
from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.operations import factor_key
from cutaway.encyclopedia.shapes import AttentionShape, MixerShape, Shape
from cutaway.encyclopedia.wiring import Addition, Branch, Operand, Stage
from cutaway.vocabulary import Host

STREAM = 62
"""Where the residual stream runs."""

_LEFT = 112
_GAP = 20
_ORDER = ("1st", "2nd", "3rd", "4th", "5th")


def block_width(canvas: Canvas, kind: LayerKind) -> float:
    """How wide a layer is, from the sheet's edge to its last column's."""
    stages = [_stage_width(canvas, kind.shapes, stage) for stage in kind.wiring.stages]
    return _LEFT + max(stages, default=252) + 16


def _stage_width(canvas: Canvas, shapes: Mapping[Host, Shape], stage: Stage) -> float:
    widths = [_width(canvas, shapes[branch.host]) for branch in stage.branches]
    return sum(widths) + _GAP * (len(widths) - 1)


def _width(canvas: Canvas, shape: Shape) -> float:
    if isinstance(shape, AttentionShape):
        return attention_width(canvas, shape)
    return mixer_width(canvas, shape) if isinstance(shape, MixerShape) else mlp_width(canvas, shape)


def draw_block(canvas: Canvas, kind: LayerKind, top: float, width: float) -> float:
    """Draws a layer from `top` on, as wide as it is given; returns where it ends."""
    canvas.tap("layer_input", STREAM, top + 44)
    start, y = top, top + 66
    for number, stage in enumerate(kind.wiring.stages):
        if number:
            canvas.tap("layer_mid", STREAM, start + 23)
            y = start + 47
        start = _stage(canvas, kind.shapes, stage, y, start, width - _LEFT - 16)
    canvas.tap("layer_output", STREAM, start + 23)
    canvas.wire((STREAM, start), (STREAM, start + 45), kind="stream")
    return start + 45


def _stage(canvas: Canvas, shapes: Mapping[Host, Shape], stage: Stage, y: float, stream: float, room: float) -> float:
    """Sublayers that read the same stream, and their sums. `stream` is where the stream was drawn to; returns where it
    is drawn to then."""
    columns: list[float] = []
    left = float(_LEFT)
    for branch in stage.branches:
        width = max(_width(canvas, shapes[branch.host]), room if len(stage.branches) == 1 else 0)
        columns.append(left + width / 2)
        left += width + _GAP
    inside = _entered(canvas, stage, columns, y)
    ends = [_sublayer(canvas, shapes[b.host], x, inside) for b, x in zip(stage.branches, columns, strict=True)]
    lowest = max(ends)
    bottoms = {
        branch.value: _returned(canvas, branch, x, end, lowest)
        for branch, x, end in zip(stage.branches, columns, ends, strict=True)
    }
    columns_of = {branch.value: x for branch, x in zip(stage.branches, columns, strict=True)}
    return _Sums(canvas, stage, columns_of, bottoms, stream).draw()


def _sublayer(canvas: Canvas, shape: Shape, x: float, top: float) -> float:
    if isinstance(shape, AttentionShape):
        return draw_attention(canvas, shape, x, top)
    return draw_mixer(canvas, shape, x, top) if isinstance(shape, MixerShape) else draw_mlp(canvas, shape, x, top)


def _entered(canvas: Canvas, stage: Stage, columns: list[float], y: float) -> float:
    """From the stream through norms to the entrances of the sublayers, whose place it returns."""
    if stage.shared_norm:
        left, right = columns[0] - 66, columns[-1] + 66
        canvas.wire((STREAM, y + 20), (left, y + 20), arrow=True)
        canvas.box(stage.shared_norm, (left + right) / 2, y + 20, width=right - left)
        bottoms = [y + 33] * len(columns)
    else:
        bottoms = [_norm(canvas, branch.norm, x, y) for branch, x in zip(stage.branches, columns, strict=True)]
    entering = [[value for value in branch.entering if canvas.has(value)] for branch in stage.branches]
    inside = max(bottom + 20 + 22 * len(values) for bottom, values in zip(bottoms, entering, strict=True))
    for x, bottom, values in zip(columns, bottoms, entering, strict=True):
        canvas.wire((x, bottom), (x, inside))
        for i, value in enumerate(values):
            canvas.pill(value, x, bottom + 20 + 22 * i)
    return inside


def _norm(canvas: Canvas, norm: str, x: float, y: float) -> float:
    """From the stream to a norm, or where there is none, to above its sublayer; returns where it ends."""
    if not norm:
        canvas.wire((STREAM, y), (x, y), (x, y + 16))
        return y + 8
    canvas.wire((STREAM, y), (x, y), (x, y + 22), arrow=True)
    canvas.box(norm, x, y + 35)
    return y + 48


def _returned(canvas: Canvas, branch: Branch, x: float, end: float, lowest: float) -> float:
    """From a sublayer's end through its norm, where it has one there; returns how far down it is drawn."""
    y = lowest
    if branch.after:
        canvas.wire((x, end), (x, y + 16), arrow=True)
        canvas.box(branch.after, x, y + 29)
        end = y = y + 42
    canvas.wire((x, end), (x, y + 31))
    canvas.pill(branch.value, x, y + 21)
    return y + 31


class _Sums:
    """The additions of a stage, drawn from where its sublayers end."""

    def __init__(
        self, canvas: Canvas, stage: Stage, columns: Mapping[str, float], bottoms: Mapping[str, float], stream: float
    ) -> None:
        self.canvas, self.stage = canvas, stage
        self.columns, self.bottoms = columns, dict(bottoms)
        self.stream = stream
        self.y = max(bottoms.values()) + 21
        self.made: dict[frozenset[str], tuple[float, float]] = {}

    def draw(self) -> float:
        """Draws them; returns where the stream is drawn to."""
        for addition in self.stage.additions:
            self._add(addition)
        if not self.stage.additions:
            self._unknown()
        return self.stream

    def _unknown(self) -> None:
        """Where no sum is known to hold, arrows lead to the stream all the same."""
        for value, x in self.columns.items():
            self.canvas.wire((x, self.bottoms[value]), (x, self.y), (STREAM + 11, self.y), arrow=True)
        self._to_stream(self.y)
        self.canvas.junction(STREAM, self.y, "…")

    def _add(self, addition: Addition) -> None:
        to_stream = addition.left.has_stream or addition.right.has_stream
        place = STREAM if to_stream else min(self._column(addition.left), self._column(addition.right))
        others = [one for one in (addition.left, addition.right) if not self._is_at(one, place)]
        joined = next((self.made[one.names][1] for one in others if one.names in self.made and to_stream), None)
        row = self.y + (30 if joined is None and any(one.factor for one in (addition.left, addition.right)) else 0)
        row = row if joined is None else joined
        for operand in (addition.left, addition.right):
            if self._is_at(operand, place) and not to_stream:
                self._straight(operand, place, row)
            elif not self._is_at(operand, place):
                self._across(operand, place, row)
            elif operand.factor:
                self.canvas.operation(factor_key(operand), place, row - 34, f"× {operand.factor}", _wide(operand))
        if to_stream:
            self._to_stream(row)
        key = f"layer.sum-{addition.number}"
        self.canvas.operation(key, place, row, "+")
        self.canvas.caption(place - 16, row - 12, _ORDER[addition.number - 1], "order", "middle")
        self.made[addition.names] = place, row
        self.y = row + 40
        if addition.norm and to_stream:
            self._norm(addition.norm, row)

    def _norm(self, key: str, row: float) -> None:
        """A norm through which the stream itself goes."""
        width = width_of(self.canvas.part(key).name)
        self.canvas.wire((STREAM, row + 11), (STREAM, row + 28), arrow=True, kind="stream")
        self.canvas.box(key, max(STREAM, 20 + width / 2), row + 41, width=width)
        self.stream, self.y = row + 54, row + 83

    def _column(self, operand: Operand) -> float:
        if operand.has_stream:
            return STREAM
        return self.made[operand.names][0] if operand.names in self.made else self.columns[min(operand.names)]

    def _is_at(self, operand: Operand, place: float) -> bool:
        return self._column(operand) == place

    def _straight(self, operand: Operand, place: float, row: float) -> None:
        """Downwards into a sum in the same column."""
        start = self.made[operand.names][1] + 11 if operand.names in self.made else self.bottoms[min(operand.names)]
        self.canvas.wire((place, start), (place, row - 11), arrow=True)
        if operand.factor:
            self.canvas.operation(factor_key(operand), place, row - 40, f"× {operand.factor}", _wide(operand))

    def _across(self, operand: Operand, place: float, row: float) -> None:
        """Down and to the left into a sum."""
        x = self._column(operand)
        if operand.names in self.made:
            self.canvas.wire((x - 11, row), (place + 11, row), arrow=True)
            middle, y = (x + place) / 2, row
        else:
            self.canvas.wire((x, self.bottoms[min(operand.names)]), (x, row), (place + 11, row), arrow=True)
            middle, y = x, row - 32
        if operand.factor:
            self.canvas.operation(factor_key(operand), middle, y, f"× {operand.factor}", _wide(operand))

    def _to_stream(self, row: float) -> None:
        self.canvas.wire((STREAM, self.stream), (STREAM, row - 11), arrow=True, kind="stream")
        self.stream = row + 11


def _wide(operand: Operand) -> float:
    return 30 + 6.6 * len(operand.factor)
