"""Families whose blocks `native.Native` does not describe: where each value passes, written out by hand.

Nothing of Cutaway is used. A place is a module's input or output, the softmax of a layer, or the attention function's
arguments; what passes there is seen in the value's layout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tests.families import native
from tests.families.models import IDS

BATCH = len(IDS)


def as_it_is(value: Tensor) -> Tensor:
    return value


def by_rows(value: Tensor) -> Tensor:
    """Of a module that is called with a row for each token."""
    return value.unflatten(0, (BATCH, -1))


def by_heads(value: Tensor) -> Tensor:
    """Four heads, side by side."""
    return value.unflatten(-1, (4, -1))


class Place(NamedTuple):
    """`side` is "out", "in", "stream" (an input that also passes by), "softmax in", "softmax out" or "interface"."""

    side: str
    module: str = ""
    see: Callable[[Tensor], Tensor] = as_it_is


def out(module: str, see: Callable[[Tensor], Tensor] = as_it_is) -> Place:
    return Place("out", module, see)


def into(module: str, see: Callable[[Tensor], Tensor] = as_it_is) -> Place:
    return Place("in", module, see)


_INTERFACE = {name: Place("interface") for name in native.INTERIOR}
_LAYER = "model.decoder.layers.{}"
_OPT = {
    **_INTERFACE,
    "layer_input": into(_LAYER),
    "attention_premix": into(f"{_LAYER}.self_attn.out_proj", by_heads),
    "attention_output": out(f"{_LAYER}.self_attn"),
    "mlp_input": into(f"{_LAYER}.fc1", by_rows),
    "mlp_activation": out(f"{_LAYER}.activation_fn", by_rows),
    "mlp_neurons": into(f"{_LAYER}.fc2", by_rows),
    "mlp_output": out(f"{_LAYER}.fc2", by_rows),
    "layer_output": out(_LAYER),
    "lm_head_output": out("lm_head"),
}

_H = "transformer.h.{}"
_SOFTMAX = {"attention_scores": Place("softmax in"), "attention_probabilities": Place("softmax out")}
_OWN_ATTENTION = {
    "token_embeddings": out("transformer.word_embeddings"),
    "layer_input": into(_H),
    "attention_norm_output": out(f"{_H}.input_layernorm"),
    **_SOFTMAX,
    "attention_premix": into(f"{_H}.self_attention.dense", by_heads),
    "mlp_input": into(f"{_H}.mlp"),
    "mlp_neurons": into(f"{_H}.mlp.dense_4h_to_h"),
    "layer_output": out(_H),
    "final_norm_output": out("transformer.ln_f"),
    "lm_head_output": out("lm_head"),
}
_BETWEEN = {
    "layer_mid": Place("stream", f"{_H}.post_attention_layernorm"),
    "mlp_norm_output": out(f"{_H}.post_attention_layernorm"),
}
_BLOOM = {
    **_OWN_ATTENTION,
    **_BETWEEN,
    "attention_output": out(f"{_H}.self_attention.dense"),
    "mlp_activation": out(f"{_H}.mlp.gelu_impl"),
    "mlp_output": out(f"{_H}.mlp.dense_4h_to_h"),
}
_FALCON = {
    **_OWN_ATTENTION,
    "mlp_norm_output": out(f"{_H}.input_layernorm"),
    "attention_output": out(f"{_H}.self_attention"),
    "mlp_activation": out(f"{_H}.mlp.act"),
    "mlp_output": out(f"{_H}.mlp"),
}

PLACES: dict[str, Mapping[str, Place]] = {
    "opt": {
        **_OPT,
        "token_embeddings": out("model.decoder.embed_tokens"),
        "attention_norm_output": out(f"{_LAYER}.self_attn_layer_norm"),
        "layer_mid": Place("stream", f"{_LAYER}.final_layer_norm", by_rows),
        "mlp_norm_output": out(f"{_LAYER}.final_layer_norm", by_rows),
        "final_norm_output": out("model.decoder.final_layer_norm"),
    },
    "bloom": _BLOOM,
    "falcon": _FALCON,
    "falcon-groups": {
        **_FALCON,
        "attention_norm_output": out(f"{_H}.ln_attn"),
        "mlp_norm_output": out(f"{_H}.ln_mlp"),
    },
    "falcon-one-norm": _FALCON,
    "falcon-alibi": {**_FALCON, **_BETWEEN},
    "opt-behind": {**_OPT, "layer_mid": out(f"{_LAYER}.self_attn_layer_norm")},
}
"""By case of `models.APART`, where each direct value passes."""


@contextlib.contextmanager
def editing(hf: PreTrainedModel, place: Place, name: str, layer: int, edit: native.Edit) -> Iterator[None]:
    """Applies `edit` to what passes at a place, as long as the block lasts."""
    if place.side == "interface":
        with native.inside_attention(hf, name, layer, edit):
            yield
        return

    def instead(value: Tensor) -> Tensor:
        new = edit(place.see(value))
        if new is None:
            return value
        changed = value.clone()
        place.see(changed).copy_(new)
        return changed

    if place.side.startswith("softmax"):
        with _softmax(layer, place.side.endswith("in"), instead):
            yield
        return
    module = hf.get_submodule(place.module.format(layer))

    def on_output(_module: nn.Module, _args: Any, output: Any) -> Any:
        return (instead(output[0]), *output[1:]) if isinstance(output, tuple) else instead(output)

    def on_input(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if place.side == "stream":
            args[0].copy_(instead(args[0]))
            return args
        return (instead(args[0]), *args[1:])

    if place.side == "out":
        handle = module.register_forward_hook(on_output)
    else:
        handle = module.register_forward_pre_hook(on_input)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def _softmax(layer: int, at_entrance: bool, instead: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """One softmax a layer, by the number of the call."""
    plain, calls = torch.nn.functional.softmax, iter(range(100))

    def softmax(entering: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        here = next(calls) == layer
        leaving = plain(instead(entering) if here and at_entrance else entering, *args, **kwargs)
        return instead(leaving) if here and not at_entrance else leaving

    torch.nn.functional.softmax = softmax
    try:
        yield
    finally:
        torch.nn.functional.softmax = plain


def edited_logits(hf: PreTrainedModel, kind: str, name: str, layer: int, edit: native.Edit) -> Tensor:
    """The plain model's logits where one value is edited as the pass comes by it."""
    any_hf: Any = hf
    with torch.no_grad(), editing(hf, PLACES[kind][name], name, layer, edit):
        return any_hf(IDS, attention_mask=torch.ones_like(IDS)).logits


def value(hf: PreTrainedModel, kind: str, name: str, layer: int) -> Tensor:
    """One value of the plain model."""
    seen: list[Tensor] = []
    edited_logits(hf, kind, name, layer, lambda tensor: seen.append(tensor.clone()))
    assert len(seen) == 1, name
    return seen[0]


def kernels(kind: str) -> tuple[str, ...]:
    """The implementations of attention that a family has."""
    return ("eager",) if kind == "bloom" else ("sdpa", "eager")


def places(kind: str, attention: str) -> tuple[str, ...]:
    """The values of a case under an implementation of attention; Falcon's sdpa is one call, without steps."""
    hidden = native.STEPS if kind.startswith("falcon") and attention == "sdpa" else ()
    return tuple(name for name in PLACES[kind] if name not in hidden)
