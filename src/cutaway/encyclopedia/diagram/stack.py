"""The whole stack from tokens to logits, one layer of each kind opened and folded for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.encyclopedia.around import POSITIONS, around, symbol_of
from cutaway.encyclopedia.diagram.block import STREAM, block_width, draw_block
from cutaway.encyclopedia.diagram.canvas import Canvas, width_of
from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.parts import Parts, present_in
from cutaway.families.stream import told

if TYPE_CHECKING:
    from cutaway.subject.subject import Subject

_EDGE = 8
_FOLD = 6
_BETWEEN = 34
"""From one kind of layer to the next."""


def draw_stack(subject: Subject, kinds: Sequence[LayerKind], parts: Parts) -> str:
    """The diagram of a model, as SVG."""
    return stack(subject, kinds, parts)[0]


def stack(subject: Subject, kinds: Sequence[LayerKind], parts: Parts) -> tuple[str, set[str]]:
    """The diagram, and the keys of the parts that are drawn in it."""
    canvas = Canvas(parts)
    present = {kind.number: present_in(subject, kind) for kind in kinds}
    widths: list[float] = []
    for kind in kinds:
        canvas.enter(kind, present[kind.number])
        widths.append(block_width(canvas, kind))
    canvas.leave()
    width = max(widths)
    y = _entrance(canvas, subject, 20)
    for kind in kinds:
        canvas.enter(kind, present[kind.number])
        end = draw_block(canvas, kind, y, width)
        canvas.leave()
        _sheet(canvas, subject, kind, width, y, end)
        if kind is not kinds[-1]:
            canvas.wire((STREAM, end), (STREAM, end + _BETWEEN), kind="stream")
            end += _BETWEEN
        y = end
    bottom = _exit(canvas, subject, y)
    svg = canvas.svg(
        width + 2 * _FOLD + 6,
        bottom + 16,
        f"The stack of {subject.family.name}, with one of its {kinds[0].of} layers opened"
        if len(kinds) == 1
        else f"The stack of {subject.family.name}, with one layer of each of its {len(kinds)} kinds opened",
        " ".join(_described(kind) for kind in kinds) + " Every part is a link to its description.",
    )
    return svg, canvas.drawn


def _sheet(canvas: Canvas, subject: Subject, kind: LayerKind, width: float, top: float, end: float) -> None:
    """The sheet that a layer is drawn on, with as many behind it as show that there are more."""
    folds = (2, 1, 0) if len(kind.layers) > 2 else (1, 0) if len(kind.layers) == 2 else (0,)
    for i in folds:
        x, y = _EDGE + i * _FOLD, top + i * _FOLD
        canvas.sheet(x, y, width - _EDGE, end - top, "front" if i == 0 else "behind")
    name = type(subject.modules[subject.host_path("layer", kind.layer)]).__name__
    one = len(kind.layers) == kind.of
    canvas.title("model.layers", width - 14, top + 22, f"layers[0 … {kind.of - 1}]" if one else kind.told)
    canvas.caption(width - 14, top + 38, f"{len(kind.layers)} × {name}", "class", "end")
    if not one:
        canvas.caption(width - 14, top + 53, kind.words, "class", "end")


def _described(kind: LayerKind) -> str:
    where = "" if len(kind.layers) == kind.of else f"{kind.told[:1].upper()}{kind.told[1:]}: "
    if not kind.wiring.stream:
        return f"{where}{kind.words}, whose output is no known sum."
    form = "a parallel block" if kind.wiring.parallel else "a sequential block"
    form = form if where else form[:1].upper() + form[1:]
    return f"{where}{form}. Its output is {told(kind.wiring.stream)}, added in this order."


def _entrance(canvas: Canvas, subject: Subject, y: float) -> float:
    canvas.tap("input_ids", STREAM, y)
    canvas.wire((STREAM, y), (STREAM, y + 21), arrow=True)
    canvas.box("model.embed_tokens", STREAM, y + 34, width=100)
    start = y + 47
    end = y + 70
    canvas.tap("token_embeddings", STREAM, end)
    for key in around(subject).entrance:
        if key == POSITIONS:
            canvas.wire((STREAM, start), (STREAM, end + 19), arrow=True, kind="stream")
            canvas.junction(STREAM, end + 28, "+")
            canvas.box(key, STREAM + 58 + width_of(canvas.part(key).name) / 2, end + 28)
            canvas.wire((STREAM + 58, end + 28), (STREAM + 11, end + 28), arrow=True)
            start, end = end + 39, end + 34
        elif key in around(subject).paths:
            canvas.wire((STREAM, start), (STREAM, end + 21), arrow=True, kind="stream")
            _on_stream(canvas, key, end + 34)
            start, end = end + 47, end + 42
        else:
            canvas.wire((STREAM, start), (STREAM, end + 17), arrow=True, kind="stream")
            symbol = symbol_of(subject, key)
            canvas.operation(key, STREAM, end + 28, symbol, width=22 if len(symbol) == 1 else 30 + 6.2 * len(symbol))
            start, end = end + 39, end + 34
    canvas.wire((STREAM, start), (STREAM, end + 38), kind="stream")
    return end + 38


def _on_stream(canvas: Canvas, key: str, y: float) -> None:
    """A module on the stream, as far to the left as its name allows."""
    width = max(100, width_of(canvas.part(key).name))
    canvas.box(key, max(STREAM, 12 + width / 2), y, width=width)


def _exit(canvas: Canvas, subject: Subject, y: float) -> float:
    found = around(subject)
    start = y
    names = [key for key in ("model.norm", *found.leaving) if key in found.paths or canvas.has(key)]
    for i, key in enumerate(names):
        y += 44
        canvas.wire((STREAM, start), (STREAM, y - 13), arrow=True, kind="" if i else "stream")
        _on_stream(canvas, key, y)
        start = y + 13
        if key == "model.norm" and canvas.has("final_norm_output"):
            canvas.tap("final_norm_output", STREAM, y + 33)
            y += 26
    if not names:
        canvas.wire((STREAM, y), (STREAM, y + 31), arrow=True, kind="stream")
    if not canvas.has("model.lm_head"):
        return y + 30
    y += 44
    canvas.wire((STREAM, start), (STREAM, y - 13), arrow=True)
    canvas.box("model.lm_head", STREAM, y, width=100)
    start, y = y + 13, y + 12
    for value in ("lm_head_output", "logits", "next_token_probs"):
        if value == "logits":
            for key in found.logits:
                symbol = symbol_of(subject, key)
                canvas.wire((STREAM, start), (STREAM, y + 15), arrow=True)
                canvas.operation(key, STREAM, y + 26, symbol, width=30 + 6.2 * len(symbol))
                start, y = y + 37, y + 37
        if canvas.has(value):
            y += 22
            canvas.tap(value, STREAM, y)
    canvas.wire((STREAM, start), (STREAM, y))
    return y
