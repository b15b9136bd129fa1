"""Inside an attention, from its input to its output: entered at the middle of its top, left at that of its bottom."""

from __future__ import annotations

from cutaway.encyclopedia.diagram.canvas import Canvas, width_of, width_of_value
from cutaway.encyclopedia.shapes import AttentionShape, Span

_PAD = 14
_GAP = 16
_BOX = 66
_ROW = 42
"""From one box to the next below it."""

_COLUMNS: dict[Span, tuple[str, ...]] = {
    "q": ("q",),
    "k": ("k",),
    "v": ("v",),
    "kv": ("k", "v"),
    "qkv": ("q", "k", "v"),
}


class Columns:
    """Where queries, keys and values run, around `x`, and how wide the attention is."""

    def __init__(self, canvas: Canvas, shape: AttentionShape, x: float) -> None:
        wide: dict[Span, float] = dict.fromkeys(_COLUMNS, _BOX)
        for step in shape.steps:
            wide[step.span] = max(wide[step.span], width_of(canvas.part(step.key).name))
        if canvas.has("queries_before_rotary"):
            wide["q"] = max(wide["q"], width_of_value("queries_before_rotary") - 45)
        both = wide["k"] + wide["v"] + _GAP
        more = max(0, wide["kv"] - both, wide["qkv"] - wide["q"] - _GAP - both) / 2
        apart = _GAP + (41 if canvas.has("attention_sinks") else 0)
        k, v = wide["k"] + more, wide["v"] + more
        total = wide["q"] + _GAP + k + apart + v
        left = x - total / 2
        self.at = {
            "q": left + wide["q"] / 2,
            "k": left + wide["q"] + _GAP + k / 2,
            "v": left + wide["q"] + _GAP + k + apart + v / 2,
        }
        self.wide = {"q": wide["q"], "k": k, "v": v}
        self.width = max(252, total + 22)

    def middle(self, span: Span) -> float:
        """The middle of the columns that a step spans."""
        names = _COLUMNS[span]
        left = self.at[names[0]] - self.wide[names[0]] / 2
        return (left + self.at[names[-1]] + self.wide[names[-1]] / 2) / 2

    def across(self, span: Span) -> float:
        """How wide a step is that spans several columns."""
        names = _COLUMNS[span]
        return self.at[names[-1]] - self.at[names[0]] + self.wide[names[0]] / 2 + self.wide[names[-1]] / 2


def attention_width(canvas: Canvas, shape: AttentionShape) -> float:
    """How wide an attention is drawn."""
    return Columns(canvas, shape, 0).width


def draw_attention(canvas: Canvas, shape: AttentionShape, x: float, top: float) -> float:
    """Draws the attention around `x`; returns where it ends."""
    columns = Columns(canvas, shape, x)
    ends = _projections(canvas, shape, columns, x, top)
    y = _mixed(canvas, shape, columns, ends, x)
    bottom = _output(canvas, shape, x, y)
    canvas.container("layer.self_attn", x - columns.width / 2, top, columns.width, bottom - top)
    return bottom


def _projections(canvas: Canvas, shape: AttentionShape, columns: Columns, x: float, top: float) -> dict[str, float]:
    """From the input to queries, keys and values, before the rotary; returns where each column ends."""
    ends: dict[str, float] = {}
    grouped: dict[str, str] = {}
    bus = top + 34
    for step in shape.steps:
        names = _COLUMNS[step.span]
        name = canvas.part(step.key).name
        begun = [column for column in names if column in ends]
        alone = len(names) == 1
        middle = columns.at[names[0]] if alone else columns.middle(step.span)
        width = max(_BOX, width_of(name)) if alone else columns.across(step.span)
        if begun:
            y = max(ends[column] for column in begun) + 29
            together = len(names) > 1 and len({grouped.get(column) for column in names}) == 1
            for column in names[:1] if together else begun:
                place = middle if together else columns.at[column]
                canvas.wire((place, ends[column]), (place, y - 13), arrow=True)
        else:
            y = top + 56
            points = [(x, top), (x, y - 13)] if middle == x else [(x, top), (x, bus), (middle, bus), (middle, y - 13)]
            canvas.wire(*points, arrow=True)
        canvas.box(step.key, middle, y, width=width)
        for column in names:
            ends[column] = y + 13
            grouped[column] = step.span if len(names) > 1 else column
        if step.span == "kv" and canvas.has("latent_kv") and "norm" in name:
            canvas.wire((middle, y + 13), (middle, y + 37))
            canvas.pill("latent_kv", middle, y + 29)
            for column in names:
                ends[column] = y + 37
    for column in ("q", "k", "v"):
        if column not in ends:
            canvas.wire((x, top), (x, bus), (columns.at[column], bus), (columns.at[column], bus + 22))
            ends[column] = bus + 22
    return ends


def _mixed(canvas: Canvas, shape: AttentionShape, columns: Columns, ends: dict[str, float], x: float) -> float:
    """From queries, keys and values to the heads' outputs; returns where they are mixed."""
    q, k, v = (columns.at[name] for name in ("q", "k", "v"))
    y = max(ends["q"], ends["k"])
    before = [
        (value, place)
        for value, place in (("queries_before_rotary", q + 20), ("keys_before_rotary", k))
        if canvas.has(value)
    ]
    unrotated = [(value, place, y + 17 + 21 * i) for i, (value, place) in enumerate(before)]
    y += 25 + (6 + 21 * len(before) if before else 0)
    if shape.rotary:
        for name, place in (("q", q), ("k", k)):
            canvas.wire((place, ends[name]), (place, y - 11), arrow=True)
            ends[name] = y
        canvas.operation("attention.rotary", (q + k) / 2, y, "rotary" + _turned(shape), width=k - q + 62)
        y += 34
    else:
        y -= 4
    named = [
        (value, place)
        for value, place in (("attention_queries", q + 22), ("attention_keys", k), ("attention_values", v - 20))
        if canvas.has(value)
    ]
    steps = [(value, place, y + 21 * i) for i, (value, place) in enumerate(named)]
    y = y + 21 * max(0, len(steps) - 1) + 32
    product = (q + k) / 2
    canvas.wire((q, ends["q"]), (q, y), (product - 11, y), arrow=True)
    canvas.wire((k, ends["k"]), (k, y), (product + 11, y), arrow=True)
    for value, place, step in (*unrotated, *steps):
        canvas.pill(value, place, step)
    canvas.operation("attention.product", product, y, "·")
    y += 11
    for key in shape.scores:
        canvas.wire((product, y), (product, y + 17), arrow=True)
        canvas.operation(key, product, y + 28, canvas.part(key).name, width=74)
        y += 39
    canvas.wire((product, y), (product, y + 42), arrow=True)
    canvas.pill("attention_scores", product, y + 19)
    canvas.operation("attention.softmax", product, y + 53, "softmax", width=70)
    if canvas.has("attention_sinks"):
        right = product + 35 + 12
        canvas.wire((product + 35, y + 53), (right, y + 53))
        canvas.pill("attention_sinks", right + width_of_value("attention_sinks") / 2, y + 53)
    mixed = y + 101
    canvas.wire((product, y + 64), (product, mixed), (x - 11, mixed), arrow=True)
    canvas.pill("attention_probabilities", product + 10, y + 79)
    canvas.wire((v, ends["v"]), (v, mixed), (x + 11, mixed), arrow=True)
    canvas.operation("attention.mix", x, mixed, "×")
    return mixed


def _turned(shape: AttentionShape) -> str:
    assert shape.rotary is not None
    turned, width = shape.rotary
    return f", {turned} of {width}"


def _output(canvas: Canvas, shape: AttentionShape, x: float, mixed: float) -> float:
    """From the mixed values to the attention's end, which it returns."""
    y = mixed + 11
    values = [value for value in ("attention_head_outputs", "attention_premix") if canvas.has(value)]
    between = list(shape.after)
    start = y
    for value in values:
        if value == "attention_premix" and between:
            start = y = _between(canvas, between, x, start, y)
            between = []
        canvas.pill(value, x, y + 17)
        y += 21
    if between:
        start = y = _between(canvas, between, x, start, y)
    if not canvas.has("attention.o_proj"):
        canvas.wire((x, start), (x, y + 28))
        return y + 28
    y += 10 if values else 16
    canvas.wire((x, start), (x, y), arrow=True)
    canvas.box("attention.o_proj", x, y + 13)
    end = y + 26 + _PAD
    if canvas.has("head_contributions"):
        canvas.pill("head_contributions", x, y + 41)
        end += 28
    canvas.wire((x, y + 26), (x, end))
    return end


def _between(canvas: Canvas, keys: list[str], x: float, start: float, y: float) -> float:
    """Modules and operations between the heads' outputs and what the output projection takes."""
    for key in keys:
        y += 12 if y > start else 16
        canvas.wire((x, start), (x, y), arrow=True)
        if key == "attention.gate":
            canvas.operation(key, x, y + 11, "×")
            if canvas.has("attention_gate"):
                left = x - 11 - 14
                canvas.wire((left, y + 11), (x - 11, y + 11), arrow=True)
                canvas.pill("attention_gate", left - width_of_value("attention_gate") / 2, y + 11)
            y += 22
        else:
            canvas.box(key, x, y + 13)
            y += 26
        start = y
    return y
