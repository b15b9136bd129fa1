"""What happens between a layer's modules and values, and has no module of its own: rotary, products, sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.part import Part
from cutaway.encyclopedia.shapes import AttentionShape, MixerShape, MlpShape, rope_base
from cutaway.encyclopedia.wiring import STREAM, Operand

if TYPE_CHECKING:
    from cutaway.subject.subject import Subject

_TERMS = {
    STREAM: "the stream",
    "attention_output": "attention",
    "mixer_output": "the mixer",
    "mlp_output": "the MLP",
}


def operations_of(subject: Subject, kind: LayerKind) -> Iterator[Part]:
    """The operations of one kind of layer."""
    for shape in kind.shapes.values():
        if isinstance(shape, AttentionShape):
            yield from _of_attention(subject, kind.layer, shape)
        elif isinstance(shape, MixerShape):
            yield from _of_mixer(shape)
        else:
            yield from _of_mlp(subject, kind.layer, shape)
    yield from _sums(kind)


def _operation(key: str, name: str, meaning: str) -> Part:
    return Part(key, "operation", name, meaning=meaning)


def _of_attention(subject: Subject, layer: int, shape: AttentionShape) -> Iterator[Part]:
    if shape.rotary:
        turned, width = shape.rotary
        share = "every dimension" if turned == width else f"{_which(subject)} {turned} of {width} dimensions"
        base = rope_base(subject, layer)
        meaning = f"turns {share} of each query and key head by position; base {base:,.0f}"
        yield _operation("attention.rotary", "rotary", meaning)
    yield _operation("attention.product", "query · key", _product(subject, layer))
    config = subject.hf.config
    for key in shape.scores:
        if key == "attention.softcap":
            cap = config.attn_logit_softcapping
            yield _operation(
                key, "soft cap", f"keeps scores between −{cap:g} and {cap:g}, by {cap:g} · tanh(score / {cap:g})"
            )
        else:
            meaning = "takes from each score the distance of query and key, times a slope of the head's own (ALiBi)"
            yield _operation(key, "ALiBi", meaning)
    over = "keys and the head's sink" if _has(subject, layer, "attention_sinks") else "keys"
    yield _operation("attention.softmax", "softmax", f"makes each query's scores a distribution over {over}")
    yield _operation("attention.mix", "mix", "the values, mixed by the pattern, head by head")
    if "attention.gate" in shape.after:
        differs = subject.family_at(layer).premix_differs
        yield _operation("attention.gate", "gate", differs or "each head's output times the sigmoid of its gate")


def _has(subject: Subject, layer: int, value: str) -> bool:
    return value in subject.family_at(layer).values


def _which(subject: Subject) -> str:
    """Which dimensions of a head a rotary turns that does not turn all."""
    return "the last" if isinstance(getattr(subject.hf.config, "qk_rope_head_dim", None), int) else "the first"


def _product(subject: Subject, layer: int) -> str:
    sizes = subject.sizes_at(layer)
    heads, keys, width = (sizes.get(name, 0) for name in ("num_heads", "num_kv_heads", "qk_head_dim"))
    module = subject.modules[subject.places.interior(subject.host_path("attention", layer))]
    scaling: Any = getattr(module, "scaling", None)
    by = "the head's width to the power −½"
    if width and isinstance(scaling, float) and abs(scaling - width**-0.5) > 1e-6:
        by = f"{scaling:.4g}"
    told = f"every query times every key, scaled by {by}, and masked"
    if keys and heads > keys:
        told += f"; each key head serves {heads // keys} query heads"
    windows = _windows(subject)
    return told + (f". {windows}" if windows else "")


def _windows(subject: Subject) -> str:
    """On which layers a query sees the latest keys alone."""
    from cutaway.inspection.numbers import ranges

    config = subject.hf.config
    types, window = getattr(config, "layer_types", None), getattr(config, "sliding_window", None)
    layers = [layer for layer, kind in enumerate(types or ()) if kind == "sliding_attention"]
    if not window or not layers:
        return ""
    where = "Each query" if len(layers) == len(types or ()) else f"On layers {ranges(layers)} each query"
    return f"{where} sees the {window:,} latest keys alone"


def _of_mixer(shape: MixerShape) -> Iterator[Part]:
    if shape.recurs:
        meaning = "goes from position to position with a state that each token decays, adds to and reads from"
        yield _operation("mixer.recurrence", "recurrence", meaning)


def _of_mlp(subject: Subject, layer: int, shape: MlpShape) -> Iterator[Part]:
    if shape.kind in ("gated", "fused gate"):
        yield _operation("mlp.product", "gate × up", "the activation times the up projection")
    if shape.kind != "experts":
        return
    chosen = subject.sizes_at(layer).get("experts_per_token")
    count = subject.sizes_at(layer).get("num_experts")
    of = f"{chosen} of {count} experts" if chosen and count else "experts"
    yield _operation(
        "mlp.choice", "choice", f"takes the {of} whose scores for the token are the highest, and weighs them"
    )
    if "shared_expert" in subject.family_at(layer).modules["mlp"]:
        yield _operation("mlp.sum", "sum", "what the chosen experts give, weighed, and what the shared one gives")
    if shape.shared_gate:
        yield _operation(
            "mlp.gate", "gate", "the shared expert's output times the sigmoid of its gate, one number a token"
        )


def _sums(kind: LayerKind) -> Iterator[Part]:
    """The additions by which a layer's output comes about, in their true order."""
    additions = kind.wiring.additions
    for addition in additions:
        left, right = _told(addition.left, kind), _told(addition.right, kind)
        name = f"{_ORDINALS[addition.number - 1]} sum"
        if addition.number < len(additions):
            meaning = f"{left} + {right}, added {_ORDINALS[addition.number - 1]}"
        else:
            last = sorted(addition.right.names)
            comes = f"{_TERMS.get(last[0], f'`{last[0]}`')} comes last, and " if len(last) == 1 else ""
            meaning = f"{left}, plus {right}: {comes}the result is `layer_output`"
        yield _operation(f"layer.sum-{addition.number}", name, meaning)
        for operand in (addition.left, addition.right):
            if operand.factor:
                named = f"{_told(Operand(operand.names), kind)} times {operand.factor}, before it is added"
                yield _operation(factor_key(operand), "factor", named)


def factor_key(operand: Operand) -> str:
    """The part that stands for the factor of what is added."""
    return f"layer.factor-{'-'.join(sorted(operand.names))}"


def _told(operand: Operand, kind: LayerKind) -> str:
    factor = f"{operand.factor} × " if operand.factor else ""
    if len(operand.names) == 1:
        return f"{factor}`{min(operand.names)}`"
    between = {frozenset(_before_mlp(kind)): "`layer_mid`"}
    names = " and ".join(f"`{name}`" for name in _in_order(operand.names, kind))
    return factor + between.get(operand.names, f"what {names} add up to")


def _in_order(names: frozenset[str], kind: LayerKind) -> list[str]:
    from cutaway.families.stream import names_in

    return [name for name in names_in(kind.wiring.stream) if name in names]


def _before_mlp(kind: LayerKind) -> set[str]:
    """The terms of the stream between the first stage and the second; none where there is one stage alone."""
    first, *others = kind.wiring.stages
    return {STREAM, *(branch.value for branch in first.branches)} if others else set()


_ORDINALS = ("first", "second", "third", "fourth", "fifth")
