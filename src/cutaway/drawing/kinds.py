"""Each kind of still picture: which values it reads, and the function of `cutaway.pictures` that draws them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from cutaway import pictures
from cutaway.drawing.heads import chosen, patterns_of
from cutaway.drawing.rotary import key_before, query_before, rotary_of
from cutaway.drawing.tokens import each_alone, name_of, tokens_of
from cutaway.errors import InputError, did_you_mean
from cutaway.model import StandardizedTransformer
from cutaway.pictures import Picture
from cutaway.pictures.theme import ThemeName

Look = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of picture.

    Attributes:
        shows: what it shows, in a clause.
        draw: draws it, given the model, the prompt, the layer and the head asked for, and the theme.
        needs_prompt: whether it is of a prompt at all.
        of: whether it is of one layer or head; of `all` it takes neither.
    """

    shows: str
    draw: Callable[[StandardizedTransformer, str, int | None, int | None, ThemeName], Picture]
    needs_prompt: bool = True
    of: Literal["head", "layer", "all"] = "all"


def draw(
    model: StandardizedTransformer,
    kind: str,
    prompt: str = "",
    *,
    layer: int | None = None,
    head: int | None = None,
    theme: ThemeName = "light",
) -> Picture:
    """A still picture of a model on a prompt.

    Args:
        model: the model.
        kind: one of `KINDS`.
        prompt: a text; `rotary-heatmap` needs none.
        layer: which layer, where the picture is of one; when left out, the one whose head tells most.
        head: which head, likewise.
        theme: `light` or `dark`.

    Raises:
        InputError: there is no such kind, layer or head, the picture is of none, or the prompt is empty.
        UnavailableValueError: the model lacks what the picture shows.
    """
    chosen_kind = kind_of(kind)
    if chosen_kind.needs_prompt and not prompt:
        raise InputError(f"a picture of kind {kind} is of a prompt; give a text.")
    _refuse_place(kind, chosen_kind, layer, head)
    return chosen_kind.draw(model, prompt, layer, head, theme)


def _refuse_place(name: str, kind: Kind, layer: int | None, head: int | None) -> None:
    for given, what, refused in ((layer, "layer", kind.of == "all"), (head, "head", kind.of != "head")):
        if given is not None and refused:
            shown = "one layer, and of every head in it" if kind.of == "layer" else "the whole model"
            raise InputError(f"a picture of kind {name} is of {shown}; leave out {what} {given}.")


def kind_of(name: str) -> Kind:
    """The kind of this name.

    Raises:
        InputError: there is none; all are listed.
    """
    if name not in KINDS:
        raise InputError(f"no picture is called '{name}'.{did_you_mean(name, KINDS)} There are {', '.join(KINDS)}.")
    return KINDS[name]


def _attention_head(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    at = chosen(model, prompt, layer, head)
    pattern = _one(model.read(prompt, f"layers.{at.layer}.self_attn.attention_probabilities"))[0, at.head]
    title = f"{name_of(model)}: attention of layer {at.layer}, head {at.head}"
    return pictures.attention_head(pattern, tokens_of(model, prompt), title=title, theme=theme)


def _attention_layer(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    at = chosen(model, prompt, layer, head)
    patterns = _one(model.read(prompt, f"layers.{at.layer}.self_attn.attention_probabilities"))
    title = f"{name_of(model)}: attention of layer {at.layer}"
    return pictures.attention_layer(patterns, tokens_of(model, prompt), title=title, theme=theme)


def _attention_grid(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    title = f"{name_of(model)}: attention of every head"
    return pictures.attention_grid(patterns_of(model, prompt), tokens_of(model, prompt), title=title, theme=theme)


def _stream_norms(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    streams = list(model.read(prompt, "layers.0.layer_input", "layer_output").values())
    title = f"{name_of(model)}: norm of the residual stream"
    names = _stream_names(len(streams))
    return pictures.stream_norms(streams, tokens_of(model, prompt), layer_names=names, title=title, theme=theme)


def _lens(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    streams = list(model.read(prompt, "layers.0.layer_input", "layer_output").values())
    tops: list[list[pictures.Token]] = []
    shares: list[Tensor] = []
    with torch.no_grad():
        for stream in streams:
            best = model.project_on_vocab(stream)[0].float().softmax(-1).max(-1)  # [seq]
            tops.append(each_alone(model, best.indices.tolist()))
            shares.append(best.values)
    title = f"{name_of(model)}: what each layer's stream says comes next"
    names = _stream_names(len(streams))
    tokens = tokens_of(model, prompt)
    return pictures.lens_table(tops, shares, tokens, layer_names=names, title=title, theme=theme)


def _next_token(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    probabilities = model.read(prompt, "next_token_probs")["next_token_probs"][0]
    best = probabilities.topk(min(10, len(probabilities)))
    tokens = each_alone(model, best.indices.tolist())
    title = f"{name_of(model)}: next token"
    return pictures.next_token_bars(tokens, best.values, prompt=prompt, title=title, theme=theme)


def _rotated_vector(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    rotary = rotary_of(model)
    at = chosen(model, prompt, layer, head)
    title = f"{name_of(model)}: a query of layer {at.layer}, head {at.head}, at several positions"
    query = query_before(model, prompt, at)
    return pictures.rotated_vector(query, rotary_dims=rotary.dims, base=rotary.base, title=title, theme=theme)


def _rotary_heatmap(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    rotary = rotary_of(model)
    title = f"{name_of(model)}: the rotary's cos and sin, by position and pair"
    return pictures.rotary_heatmap(32, rotary.dims, base=rotary.base, title=title, theme=theme)


def _relative_position(
    model: StandardizedTransformer, prompt: str, layer: int | None, head: int | None, theme: ThemeName
) -> Picture:
    rotary = rotary_of(model)
    at = chosen(model, prompt, layer, head)
    return pictures.relative_position_curve(
        64,
        rotary_dims=rotary.dims,
        base=rotary.base,
        query=query_before(model, prompt, at),
        key=key_before(model, prompt, at),
        title=f"{name_of(model)}: q·k by distance, layer {at.layer}, head {at.head}",
        theme=theme,
    )


def _one(values: dict[str, Tensor]) -> Tensor:
    (value,) = values.values()
    return value


def _stream_names(count: int) -> list[str]:
    return ["embeddings", *(f"after {layer}" for layer in range(count - 1))]


KINDS: dict[str, Kind] = {
    "attention-head": Kind("one head's pattern", _attention_head, of="head"),
    "attention-layer": Kind("the patterns of a layer's heads", _attention_layer, of="layer"),
    "attention-grid": Kind("the patterns of every head", _attention_grid),
    "stream-norms": Kind("the norm of the residual stream, by layer and position", _stream_norms),
    "lens": Kind("what each layer's stream says comes next", _lens),
    "next-token": Kind("the likeliest next tokens", _next_token),
    "rotated-vector": Kind("the last token's query at several positions", _rotated_vector, of="head"),
    "rotary-heatmap": Kind("cos and sin by position and pair", _rotary_heatmap, needs_prompt=False),
    "relative-position": Kind("the last token's q·k by distance", _relative_position, of="head"),
}
"""Every kind of still picture, by its name on the command line."""
