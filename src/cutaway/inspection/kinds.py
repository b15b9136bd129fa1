"""What the layers of a model are, in words, where they are of several kinds."""

from __future__ import annotations

from cutaway.families import Family
from cutaway.inspection.numbers import ranges
from cutaway.subject.subject import Subject


def load_told(subject: Subject, *more: str) -> str:
    """How a model is loaded, and of which kinds its layers are."""
    told = ", ".join((subject.describe_load(), *more))
    kinds = kinds_of(subject)
    if len(kinds) < 2:
        return told
    listed = "; ".join(f"{ranges(layers)}: {what}" for what, layers in kinds.items())
    return f"{told}. Layers {listed}"


def kinds_of(subject: Subject) -> dict[str, list[int]]:
    """The layers of each kind, by what they have."""
    found: dict[int, tuple[Family, list[int]]] = {}
    for layer in range(subject.sizes["num_layers"]):
        family = subject.family_at(layer)
        found.setdefault(id(family), (family, []))[1].append(layer)
    words = [sublayers_told(family) for family, _ in found.values()]
    kinds: dict[str, list[int]] = {}
    for word, (_, layers) in zip(words, found.values(), strict=True):
        name = (
            word
            if words.count(word) == 1
            else f"{word} ({len([known for known in kinds if known.startswith(word)]) + 1})"
        )
        kinds[name] = layers
    return kinds


def sublayers_told(family: Family) -> str:
    """The sublayers of a layer, in the field's words: "attention and experts"."""
    names, inside = family.modules["layer"], family.modules.get("mlp", {})
    words = [word for name, word in (("self_attn", "attention"), ("mixer", "mixer")) if name in names]
    if "mlp" in names:
        words.append("experts" if inside.keys() & {"router", "experts"} or "router_logits" in family.values else "MLP")
    return " and ".join(words) or "neither attention nor MLP"
