"""The whole stack from tokens to logits, its repeated block opened once and folded for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutaway.encyclopedia.diagram.block import STREAM, Wiring, draw_block, width_of
from cutaway.encyclopedia.diagram.canvas import Canvas
from cutaway.encyclopedia.diagram.sublayers import Shape
from cutaway.encyclopedia.operations import is_gated, is_parallel, rotary_dims
from cutaway.encyclopedia.parts import Parts, own_modules
from cutaway.families.stream import names_in

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_EDGE = 8
_FOLD = 6


def draw_stack(model: StandardizedTransformer, parts: Parts) -> str:
    """The diagram of a model, as SVG."""
    canvas, wiring = Canvas(parts), wiring_of(model)
    width = width_of(wiring)
    entrance = _entrance(canvas, 20)
    block_end = draw_block(canvas, wiring, shape_of(model), entrance)
    layers = model.sizes["num_layers"]
    height = block_end - entrance
    for i in (2, 1, 0):
        x, y = _EDGE + i * _FOLD, entrance + i * _FOLD
        canvas.sheet(x, y, width - _EDGE, height, "front" if i == 0 else "behind")
    name = type(model.layers[0].module).__name__
    canvas.title("model.layers", width - 14, entrance + 22, f"layers[0 … {layers - 1}]")
    canvas.caption(width - 14, entrance + 38, f"{layers} × {name}", "class", "end")
    bottom = _exit(canvas, block_end)
    order = " + ".join(wiring.stream)
    kind = "parallel" if wiring.parallel else "sequential"
    return canvas.svg(
        width + 2 * _FOLD + 6,
        bottom + 16,
        f"The stack of {model._subject.family.name}, with one of its {layers} blocks opened",
        f"A {kind} block. Its output is {order}, added in this order. Every part is a link to its description.",
    )


def wiring_of(model: StandardizedTransformer) -> Wiring:
    """How a model's blocks are wired, by its family file."""
    family = model._subject.family
    return Wiring(
        parallel=is_parallel(model),
        attention_norm=f"layer.{family.values['attention_norm_output'].module}",
        mlp_norm=f"layer.{family.values['mlp_norm_output'].module}",
        stream=tuple(names_in(family.stream)),
    )


def shape_of(model: StandardizedTransformer) -> Shape:
    """What a model's sublayers are like."""
    subject = model._subject
    turned, width = rotary_dims(model), model.sizes["qk_head_dim"]
    own_attention, own_mlp = own_modules(subject, "attention"), own_modules(subject, "mlp")
    separate = "q_proj" in subject.family.modules["attention"]
    return Shape(
        fused="" if separate else f"attention.{own_attention[0]}",
        rotary=f"rotary, {turned} of {width}" if turned else "",
        first="" if is_gated(model) else f"mlp.{own_mlp[0]}",
        gated=is_gated(model),
    )


def _entrance(canvas: Canvas, y: float) -> float:
    canvas.tap("input_ids", STREAM, y)
    canvas.wire((STREAM, y), (STREAM, y + 21), arrow=True)
    canvas.box("model.embed_tokens", STREAM, y + 34, width=100)
    end = y + 108
    if canvas.has("model.positions"):
        end += 34
        canvas.box("model.positions", STREAM + 90, y + 98, width=64)
        canvas.junction(STREAM, y + 98, "+")
        canvas.wire((STREAM + 58, y + 98), (STREAM + 11, y + 98), arrow=True)
    canvas.wire((STREAM, y + 47), (STREAM, end), kind="stream")
    canvas.tap("token_embeddings", STREAM, y + 70)
    return end


def _exit(canvas: Canvas, y: float) -> float:
    y += 44
    canvas.wire((STREAM, y - 44), (STREAM, y - 13), arrow=True, kind="stream")
    canvas.box("model.norm", STREAM, y, width=100)
    canvas.wire((STREAM, y + 13), (STREAM, y + 57), arrow=True)
    canvas.tap("final_norm_output", STREAM, y + 33)
    canvas.box("model.lm_head", STREAM, y + 70, width=100)
    canvas.wire((STREAM, y + 83), (STREAM, y + 148))
    for i, value in enumerate(("lm_head_output", "logits", "next_token_probs")):
        canvas.tap(value, STREAM, y + 104 + 22 * i)
    return y + 148
