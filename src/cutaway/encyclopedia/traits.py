"""What tells families apart, read from the family file and a checkpoint's model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutaway.encyclopedia.diagram.stack import wiring_of
from cutaway.encyclopedia.operations import is_gated, rotary_dims
from cutaway.encyclopedia.parts import own_modules, position_embedding

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@dataclass(frozen=True)
class Trait:
    """One thing in which families differ. `value` is what one filters by, `detail` says more."""

    name: str
    value: str
    detail: str = ""


def traits_of(model: StandardizedTransformer) -> list[Trait]:
    """All traits of a model, always in the same order."""
    wiring = wiring_of(model)
    return [
        Trait("block", "parallel" if wiring.parallel else "sequential", _sublayers(wiring.parallel)),
        _norms(model),
        _positions(model),
        _heads(model),
        _projections(model),
        _mlp(model),
        _biases(model),
        _head(model),
    ]


def _sublayers(parallel: bool) -> str:
    return "attention beside the MLP" if parallel else "attention, then the MLP"


def _norms(model: StandardizedTransformer) -> Trait:
    wiring = wiring_of(model)
    kind = type(model.layers[0].input_layernorm.module).__name__
    kind = "RMSNorm" if "RMS" in kind else kind
    one = wiring.attention_norm == wiring.mlp_norm
    return Trait("norms", kind, "one for both sublayers" if one else "one for each sublayer")


def _positions(model: StandardizedTransformer) -> Trait:
    turned, width = rotary_dims(model), model.sizes["qk_head_dim"]
    if not turned:
        learned = position_embedding(model._subject)
        return Trait("positions", "learned", "added at the entrance") if learned else Trait("positions", "none")
    if turned == width:
        return Trait("positions", "full rotary", "every dimension of a head")
    return Trait("positions", "partial rotary", f"{turned} of {width} dimensions of a head")


def _heads(model: StandardizedTransformer) -> Trait:
    heads, kv_heads = model.sizes["num_heads"], model.sizes["num_kv_heads"]
    if kv_heads == heads:
        return Trait("heads", "full", f"{heads} of queries and of keys")
    return Trait("heads", "grouped", f"{heads} of queries, {kv_heads} of keys")


def _projections(model: StandardizedTransformer) -> Trait:
    if "q_proj" in model._subject.family.modules["attention"]:
        return Trait("projections", "separate", "q_proj, k_proj, v_proj")
    return Trait("projections", "fused", own_modules(model._subject, "attention")[0])


def _mlp(model: StandardizedTransformer) -> Trait:
    config = model.config
    activation = getattr(config, "hidden_act", None) or getattr(config, "activation_function", "")
    return Trait("mlp", "gated" if is_gated(model) else "plain", str(activation))


def _biases(model: StandardizedTransformer) -> Trait:
    head = model.hf.get_output_embeddings()
    inside = [
        module
        for module in model.layers[0].module.modules()
        if getattr(module, "weight", None) is not None and type(module).__name__ in ("Linear", "Conv1D")
    ]
    biased = [getattr(module, "bias", None) is not None for module in inside]
    if not any(biased):
        return Trait("biases", "none")
    if not all(biased):
        return Trait("biases", "some")
    if getattr(head, "bias", None) is None:
        return Trait("biases", "in the blocks", "none on the head")
    return Trait("biases", "everywhere", "the head too")


def _head(model: StandardizedTransformer) -> Trait:
    if model.config.tie_word_embeddings:
        return Trait("head", "tied", "the embedding's own matrix")
    return Trait("head", "untied", "a matrix of its own")
