"""What tells families apart, read from the family file and a checkpoint's model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.around import position_embedding
from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.shapes import AttentionShape, MlpShape
from cutaway.inspection.numbers import ranges

if TYPE_CHECKING:
    from cutaway.subject.subject import Subject


@dataclass(frozen=True)
class Trait:
    """One thing in which families differ. `value` is what one filters by, `detail` says more."""

    name: str
    value: str
    detail: str = ""


def traits_of(subject: Subject, kinds: Sequence[LayerKind]) -> list[Trait]:
    """All traits of a model, always in the same order."""
    attending = next((kind for kind in kinds if "attention" in kind.shapes), None)
    return [
        _block(kinds),
        _mixing(subject, kinds),
        _norms(subject, kinds),
        _positions(subject, attending),
        _heads(subject, attending),
        _projections(subject, attending),
        _mlp(subject, kinds),
        _biases(subject, kinds),
        _head(subject),
    ]


def _block(kinds: Sequence[LayerKind]) -> Trait:
    hosts = [branch.host for kind in kinds for branch in kind.wiring.branches]
    mixing = " or ".join(
        word for host, word in (("mixer", "a recurrence"), ("attention", "attention")) if host in hosts
    )
    if any(kind.wiring.parallel for kind in kinds):
        return Trait("block", "parallel", f"{mixing} beside the MLP")
    if "mlp" not in hosts:
        return Trait("block", "one sublayer", f"{mixing}, and no MLP")
    shapes = [kind.shapes.get("mlp") for kind in kinds]
    words = {"experts" if isinstance(shape, MlpShape) and shape.kind == "experts" else "the MLP" for shape in shapes}
    return Trait("block", "sequential", f"{mixing}, then {' or '.join(sorted(words, reverse=True))}")


def _mixing(subject: Subject, kinds: Sequence[LayerKind]) -> Trait:
    """By what tokens see one another."""
    config: Any = subject.hf.config
    layers = subject.sizes["num_layers"]
    mixing = [layer for kind in kinds if "mixer" in kind.shapes for layer in kind.layers]
    if len(mixing) == layers:
        return Trait("attention", "none", "a recurrence in its place")
    if mixing:
        return Trait("attention", "hybrid", f"a recurrence on {len(mixing)} of {layers} layers")
    types, window = getattr(config, "layer_types", None) or (), getattr(config, "sliding_window", None)
    sliding = [layer for layer, kind in enumerate(types) if kind == "sliding_attention"]
    if window and (sliding or not types) and getattr(config, "use_sliding_window", True):
        where = "every layer" if len(sliding) in (0, layers) else f"layers {ranges(sliding)}"
        return Trait("attention", "windows", f"{window:,} tokens on {where}")
    return Trait("attention", "full", "every token sees all before it")


def _norms(subject: Subject, kinds: Sequence[LayerKind]) -> Trait:
    branches = [(kind, branch) for kind in kinds for branch in kind.wiring.branches]
    named = [key for _, branch in branches for key in (branch.norm, branch.after) if key]
    first = named[0] if named else ""
    layer = kinds[0].layer
    name = type(subject.modules[subject.module_path("layer", layer, first.partition(".")[2])]).__name__ if first else ""
    if any(stage.shared_norm for kind in kinds for stage in kind.wiring.stages):
        where = "one for both sublayers"
    elif all(branch.norm and branch.after for _, branch in branches):
        where = "before and after each sublayer"
    elif all(branch.after for _, branch in branches):
        where = "after each sublayer, none before"
    else:
        where = "one for each sublayer" if len(kinds[0].wiring.branches) > 1 else "one before it"
    inside = [kind.shapes.get("attention") for kind in kinds]
    normed = {s.span for shape in inside if isinstance(shape, AttentionShape) for s in shape.steps if "norm" in s.key}
    where += "; queries and keys too" if {"q", "k"} <= normed else ""
    return Trait("norms", "RMSNorm" if "RMS" in name else "LayerNorm" if "LayerNorm" in name else name or "none", where)


def _positions(subject: Subject, kind: LayerKind | None) -> Trait:
    shape = None if kind is None else kind.shapes["attention"]
    if not isinstance(shape, AttentionShape):
        return Trait("positions", "none", "the recurrence goes in order")
    if "attention.alibi" in shape.scores:
        return Trait("positions", "ALiBi", "a slope for each head, on distances")
    if not shape.rotary:
        learned = position_embedding(subject)
        return Trait("positions", "learned", "added at the entrance") if learned else Trait("positions", "none")
    turned, width = shape.rotary
    if turned == width:
        return Trait("positions", "full rotary", "every dimension of a head")
    return Trait("positions", "partial rotary", f"{turned} of {width} dimensions of a head")


def _heads(subject: Subject, kind: LayerKind | None) -> Trait:
    sizes = {} if kind is None else subject.sizes_at(kind.layer)
    heads, keys = sizes.get("num_heads"), sizes.get("num_kv_heads")
    if kind is None or not heads:
        return Trait("heads", "none")
    if "latent_kv" in subject.family_at(kind.layer).values:
        return Trait("heads", "latent", f"{heads}, keys and values from {sizes.get('kv_latent_size', '')} numbers")
    if keys in (None, heads):
        return Trait("heads", "full", f"{heads} of queries and of keys")
    return Trait("heads", "one of keys" if keys == 1 else "grouped", f"{heads} of queries, {keys} of keys")


def _projections(subject: Subject, kind: LayerKind | None) -> Trait:
    shape = None if kind is None else kind.shapes["attention"]
    if not isinstance(shape, AttentionShape) or not shape.steps:
        return Trait("projections", "none")
    names = [step.key.partition(".")[2] for step in shape.steps if "norm" not in step.key]
    fused = any(step.span == "qkv" for step in shape.steps)
    return Trait("projections", "fused" if fused else "separate", ", ".join(names))


def _mlp(subject: Subject, kinds: Sequence[LayerKind]) -> Trait:
    config: Any = subject.hf.config
    names = ("hidden_act", "hidden_activation", "activation_function", "activation")
    activation = next((str(word) for name in names if (word := getattr(config, name, None))), "")
    shapes = [(kind, shape) for kind in kinds if isinstance(shape := kind.shapes.get("mlp"), MlpShape)]
    experts = next((kind for kind, shape in shapes if shape.kind == "experts"), None)
    if experts is not None:
        sizes = subject.sizes_at(experts.layer)
        of = f"{sizes['experts_per_token']} of " if "experts_per_token" in sizes else ""
        shared = " and a shared one" if "shared_expert" in subject.family_at(experts.layer).modules["mlp"] else ""
        return Trait("mlp", "experts", f"{of}{sizes.get('num_experts', 'several')}{shared}, {activation}")
    if not shapes:
        return Trait("mlp", "none")
    return Trait("mlp", "plain" if shapes[0][1].kind == "plain" else "gated", activation)


def _biases(subject: Subject, kinds: Sequence[LayerKind]) -> Trait:
    head = subject.hf.get_output_embeddings()
    inside = [
        module
        for kind in kinds
        for module in subject.modules[subject.host_path("layer", kind.layer)].modules()
        if getattr(module, "weight", None) is not None and type(module).__name__.endswith(("Linear", "Conv1D"))
    ]
    biased = [getattr(module, "bias", None) is not None for module in inside]
    if not any(biased):
        return Trait("biases", "none")
    if not all(biased):
        return Trait("biases", "some", _where_biased(inside, subject, kinds[0]))
    if getattr(head, "bias", None) is None:
        return Trait("biases", "in the blocks", "none on the head")
    return Trait("biases", "everywhere", "the head too")


def _where_biased(inside: Sequence[Any], subject: Subject, kind: LayerKind) -> str:
    """The names of the modules that have one, where these are few."""
    layer = subject.modules[subject.host_path("layer", kind.layer)]
    linear = {id(module) for module in inside if getattr(module, "bias", None) is not None}
    names = [path.rpartition(".")[2] for path, module in layer.named_modules() if id(module) in linear]
    return ", ".join(names) if 0 < len(names) <= 4 else ""


def _head(subject: Subject) -> Trait:
    config = subject.hf.config.get_text_config()
    if config.tie_word_embeddings:
        return Trait("head", "tied", "the embedding's own matrix")
    return Trait("head", "untied", "a matrix of its own")
