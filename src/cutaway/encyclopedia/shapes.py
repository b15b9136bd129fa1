"""What the sublayers of a layer are like, as far as it changes how they are drawn and told: read from the family, the
modules there are, and a pass."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cutaway.encyclopedia.wiring import first_tensor
from cutaway.vocabulary import VALUES, Host

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.subject.subject import Subject

Span = Literal["q", "k", "v", "kv", "qkv"]
"""Of what a module of the attention is on the way: queries, keys, values, or several of them at once."""


@dataclass(frozen=True)
class Step:
    """A module on the way to queries, keys and values, as a part."""

    key: str
    span: Span


@dataclass(frozen=True)
class AttentionShape:
    """What an attention is like.

    Attributes:
        steps: the modules on the way to queries, keys and values, in the order of a pass.
        rotary: how many dimensions of a head the rotary turns, and how many there are; none where there is none.
        scores: operations between the products and the softmax, as parts: a soft cap, ALiBi.
        after: modules and operations between the heads' outputs and the output projection.
    """

    steps: tuple[Step, ...] = ()
    rotary: tuple[int, int] | None = None
    scores: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class MlpShape:
    """What an MLP is like.

    Attributes:
        kind: with a gate that has a projection of its own; with one projection to gate and neurons; without a gate; or
            experts.
        first: the module that projects onto the neurons, where it has no standard name, as a part.
        shared_gate: the module that weighs the shared expert, as a part; empty where there is none.
    """

    kind: Literal["gated", "fused gate", "plain", "experts"] = "plain"
    first: str = ""
    shared_gate: str = ""


@dataclass(frozen=True)
class MixerShape:
    """What a token mixer is like: the modules before its convolution, whether it has one, whether it has a recurrence,
    and the modules between that and the output projection; all as parts."""

    before: tuple[str, ...] = ()
    conv: str = ""
    recurs: bool = False
    after: tuple[str, ...] = ()


Shape = AttentionShape | MlpShape | MixerShape


def shape_at(subject: Subject, host: Host, layer: int) -> Shape:
    """What a sublayer of a layer is like."""
    if host == "attention":
        return _attention(subject, layer)
    return _mixer(subject, layer) if host == "mixer" else _mlp(subject, layer)


def own_modules(subject: Subject, host: Host, layer: int) -> list[str]:
    """The family's own names of the modules right on a host that have no standard name and hold weights.

    A sublayer that is spread out in its layer has none of its own: they are the layer's.
    """
    family = subject.family_at(layer)
    path = subject.host_path(host, layer)
    spread = path == subject.host_path("layer", layer)
    if path not in subject.modules or (spread and host != "layer"):
        return []
    hosts: tuple[Host, ...] = (host, "attention", "mixer", "mlp") if host == "layer" else (host,)
    named = {
        own.split(".")[0]
        for one in hosts
        if subject.host_path(one, layer) == path or one == host
        for own in family.modules.get(one, {}).values()
    }
    children = subject.modules[path].named_children()
    return [name for name, child in children if name not in named and any(True for _ in child.parameters())]


def passed(subject: Subject, value: str, layer: int | None) -> Tensor | None:
    """The very tensor that a value was in the survey's pass."""
    site = subject.family_at(layer).values.get(value)
    if site is None:
        return None
    own = subject.places.of_site(VALUES[value].host, layer, site)
    passing = subject.survey.passing.get((own, site.moment))
    return None if passing is None else site.slot.read(passing, subject.sizes)


def rotary_at(subject: Subject, layer: int) -> tuple[int, int] | None:
    """How many dimensions of a head the rotary turns, and how many there are; None where the family has none."""
    config: Any = subject.hf.config
    width = subject.sizes_at(layer).get("qk_head_dim")
    rope = _rope(subject, layer)
    if rope is None or not width or "attention" not in subject.family_at(layer).modules or _has_alibi(subject, layer):
        return None
    for key in ("qk_rope_head_dim", "rotary_dim"):
        if isinstance(getattr(config, key, None), int):
            return getattr(config, key), width
    return int(width * rope.get("partial_rotary_factor", 1.0)), width


def _rope(subject: Subject, layer: int) -> Mapping[str, Any] | None:
    """What the config says of a layer's rotary; None where it has none."""
    config: Any = subject.hf.config
    rope: Any = getattr(config, "rope_parameters", None) or ({} if getattr(config, "rotary_dim", None) else None)
    types: Any = getattr(config, "layer_types", None)
    if rope and "rope_type" not in rope and types and layer < len(types):
        return rope.get(types[layer], rope)
    return rope


def rope_base(subject: Subject, layer: int) -> float:
    """The base of the rotary's frequencies."""
    return float((_rope(subject, layer) or {}).get("rope_theta", 10000.0))


# Attention.


def _attention(subject: Subject, layer: int) -> AttentionShape:
    family, host = subject.family_at(layer), subject.host_path("attention", layer)
    own = {name: path for name, path in family.modules.get("attention", {}).items() if name != "o_proj"}
    names = [*own, *own_modules(subject, "attention", layer)]
    order = subject.survey.order
    placed = {name: order.get((subject.module_path("attention", layer, name), "exit"), -1) for name in names}
    result = order.get((subject.places.interior(host), "result"), len(order))
    before = sorted((name for name in names if placed[name] < result), key=placed.__getitem__)
    after = sorted((name for name in names if placed[name] >= result), key=placed.__getitem__)
    gate = family.values.get("attention_gate")
    gated = gate is not None or bool(family.premix_differs and not after)
    beside = set() if gate is None or gate.slot.columns else {gate.module}
    return AttentionShape(
        steps=tuple(Step(f"attention.{name}", _span(name)) for name in before if name not in beside),
        rotary=rotary_at(subject, layer),
        scores=tuple(key for key, there in _SCORES.items() if there(subject, layer)),
        after=(*(f"attention.{name}" for name in after), *(["attention.gate"] if gated else [])),
    )


def _span(name: str) -> Span:
    head = name.split("_")[0].lower()
    if head in ("q", "query", "queries"):
        return "qkv" if "_key" in name else "q"
    if head in ("k", "key"):
        return "k"
    if head in ("v", "value"):
        return "v"
    return "kv" if head == "kv" else "qkv"


def _has_soft_cap(subject: Subject, layer: int) -> bool:
    return bool(getattr(subject.hf.config, "attn_logit_softcapping", None))


def _has_alibi(subject: Subject, layer: int) -> bool:
    """Whether the attention is called with ALiBi's slopes times distances."""
    from cutaway.sites.slots import Call

    path = subject.host_path("attention", layer)
    passing = subject.survey.passing.get((path, "enter"))
    if not isinstance(passing, Call):
        return False
    names = list(inspect.signature(type(subject.modules[path]).forward).parameters)[1:]
    given = {**dict(zip(names, passing.args, strict=False)), **passing.kwargs}
    return first_tensor(given.get("alibi")) is not None


_SCORES = {"attention.softcap": _has_soft_cap, "attention.alibi": _has_alibi}
"""Operations on scores, and what tells whether a layer has them."""

# MLP and mixer.


def _mlp(subject: Subject, layer: int) -> MlpShape:
    family = subject.family_at(layer)
    names = family.modules.get("mlp", {})
    own = own_modules(subject, "mlp", layer)
    if names.keys() & {"router", "experts"}:
        gates = [name for name in own if "shared" in name and "gate" in name]
        return MlpShape("experts", shared_gate=f"mlp.{gates[0]}" if gates else "")
    if "gate_proj" in names:
        return MlpShape("gated")
    if not own:
        return MlpShape("plain", first="mlp.up_proj" if "up_proj" in names else "")
    path = subject.module_path("mlp", layer, own[0])
    returned = first_tensor(subject.survey.passing.get((path, "exit")))
    twice = returned is not None and returned.shape[-1] == 2 * subject.sizes_at(layer).get("intermediate_size", 0)
    return MlpShape("fused gate" if twice else "plain", first=f"mlp.{own[0]}")


def _mixer(subject: Subject, layer: int) -> MixerShape:
    family = subject.family_at(layer)
    names = family.modules.get("mixer", {})
    own = own_modules(subject, "mixer", layer)
    conv = next((name for name in (*names, *own) if "conv" in name), "")
    order = subject.survey.order
    placed = {name: order.get((subject.module_path("mixer", layer, name), "exit"), -1) for name in (*names, *own)}
    others = sorted((name for name in placed if name not in (conv, "out_proj")), key=placed.__getitem__)
    norms = [name for name in others if "norm" in name]
    module = subject.modules[subject.host_path("mixer", layer)]
    parameters = {name for name, _ in module.named_parameters(recurse=False)}
    return MixerShape(
        before=tuple(f"mixer.{name}" for name in others if name not in norms),
        conv=f"mixer.{conv}" if conv else "",
        recurs="ssm_output" in family.values or bool(parameters & {"A_log", "dt_bias", "A"}),
        after=tuple(f"mixer.{name}" for name in norms),
    )
