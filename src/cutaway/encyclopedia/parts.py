"""The parts of a model's layers and of the stack around them.

Modules and values come from the family file; their shapes from the survey of a checkpoint's model on the meta device.
Operations are what happens between them and has no name of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.around import POSITIONS, around, operations_around
from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.operations import operations_of
from cutaway.encyclopedia.part import Part
from cutaway.encyclopedia.shapes import AttentionShape, own_modules
from cutaway.inspection.numbers import ranges
from cutaway.vocabulary import HOSTS, LAYOUTS, MODULES, VALUES, Host, ValuePath

if TYPE_CHECKING:
    from torch import nn

    from cutaway.inspection.rows import SupportRow
    from cutaway.inspection.support import Support
    from cutaway.subject.subject import Subject

Parts = Mapping[str, Part]
"""All parts by their keys, in the order of a pass. Where a part is another in another kind of layer, that one's key
ends in the kind's number: `layer.mlp@2`."""


def parts_of(subject: Subject, kinds: Sequence[LayerKind], support: Support) -> Parts:
    """Every part of a model's stack and of one layer of each kind."""
    found = {part.key: part for part in _around(subject)}
    held: dict[str, tuple[Part, list[LayerKind]]] = {}
    for kind in kinds:
        for part in (*_modules(subject, kind), *operations_of(subject, kind)):
            key = part.key if part.key not in held or held[part.key][0] == part else variant(part.key, kind)
            held.setdefault(key, (replace(part, key=key), []))[1].append(kind)
    found.update({key: _on_its_layers(part, of) for key, (part, of) in held.items()})
    found.update({row.value: _value(subject, row) for row in support if row.available or not row.rare})
    return found


def present_in(subject: Subject, kind: LayerKind) -> frozenset[str]:
    """The parts and values of the layers that this kind of layer has."""
    parts = {part.key for part in (*_modules(subject, kind), *operations_of(subject, kind))}
    values = (ValuePath(name, kind.layer) for name, value in VALUES.items() if value.host != "model")
    return frozenset(parts | {path.name for path in values if subject.is_available(path)})


def variant(key: str, kind: LayerKind) -> str:
    """The key of a part that is another in this kind of layer than in those before."""
    return f"{key}@{kind.number}"


def _on_its_layers(part: Part, kinds: Sequence[LayerKind]) -> Part:
    """A part, with the layers that have it where some have not."""
    layers = sorted(layer for kind in kinds for layer in kind.layers)
    return part if len(layers) == kinds[0].of else replace(part, condition=f"on layers {ranges(layers)}")


def _around(subject: Subject) -> Iterator[Part]:
    for name in subject.family.modules["model"]:
        path = subject.module_path("model", None, name)
        yield _module(subject, f"model.{name}", name, path, MODULES[name].meaning)
    for key, path in around(subject).paths.items():
        meaning = "a module between the embedding and the head that keeps the family's own name"
        if key == POSITIONS:
            offset = getattr(subject.modules[path], "offset", 0)
            first = f"; position 0 is in row {offset}" if isinstance(offset, int) and offset else ""
            meaning = f"a learned vector for each position, added to the token's at the entrance{first}"
        yield _module(subject, key, path.rpartition(".")[2], path, meaning)
    yield from operations_around(subject)


def _modules(subject: Subject, kind: LayerKind) -> Iterator[Part]:
    family, layer = subject.family_at(kind.layer), kind.layer
    whole = subject.host_path("layer", layer)
    for host, names in family.modules.items():
        if host == "model":
            continue
        more = own_modules(subject, host, layer)
        if host == "layer":  # norms of the sum may stand deeper
            more += [key.removeprefix("layer.") for a in kind.wiring.additions if (key := a.norm)]
        for name in dict.fromkeys((*names, *more)):
            path = subject.module_path(host, layer, name)
            if path not in subject.modules or path == whole:
                continue  # a sublayer that is spread out in its layer is no module
            yield _module(subject, f"{host}.{name}", name, path, _meaning(kind, host, name))


def _meaning(kind: LayerKind, host: Host, name: str) -> str:
    key = f"{host}.{name}"
    if host == "layer":
        read = [_WORDS[branch.host] for branch in kind.wiring.branches if branch.norm == key]
        returned = [_WORDS[branch.host] for branch in kind.wiring.branches if branch.after == key]
        if any(addition.norm == key for addition in kind.wiring.additions):
            return "the norm of the sum, through which the stream itself goes"
        if returned:
            return f"the norm of what {returned[0]} returns, before it is added to the stream"
        if read and (name not in MODULES or len(read) > 1 or name == "post_attention_layernorm"):
            return f"the norm before {' and '.join(read)}"
    if name in MODULES:
        return MODULES[name].meaning
    shape = kind.shapes.get(host)
    if isinstance(shape, AttentionShape):
        return _meaning_in_attention(shape, key)
    if host == "mlp" and "shared" in name:
        return "what weighs the shared expert's output; it keeps the family's own name"
    if host == "mlp":
        return "the projection from the stream to the neurons; it keeps the family's own name"
    return f"a module of {_WORDS.get(host, 'the layer')} that keeps the family's own name"


def _meaning_in_attention(shape: AttentionShape, key: str) -> str:
    step = next((step for step in shape.steps if step.key == key), None)
    if step is None:
        return "a module of the attention that keeps the family's own name"
    towards = {"q": "queries", "k": "keys", "v": "values", "kv": "keys and values", "qkv": "queries, keys and values"}
    if "norm" in key:
        return f"a norm on the way to {towards[step.span]}; it keeps the family's own name"
    if step.span == "qkv":
        return "one projection for queries, keys and values; it keeps the family's own name"
    return f"a projection on the way to {towards[step.span]}; it keeps the family's own name"


_WORDS: dict[str, str] = {"attention": "the attention", "mixer": "the mixer", "mlp": "the MLP"}


def _module(subject: Subject, key: str, name: str, path: str, meaning: str) -> Part:
    module = subject.modules[path]
    returned = subject.survey.passing.get((path, "exit"))
    return Part(
        key=key,
        kind="module",
        name=name,
        native=_any_layer(subject, path),
        what=_weights(module),
        sizes=_returned(returned),
        meaning=meaning,
    )


def _any_layer(subject: Subject, path: str) -> str:
    """A module's path with `*` in the place of its layer's number."""
    layers = subject.module_path("model", None, "layers")
    if not path.startswith(f"{layers}."):
        return path
    number, dot, rest = path.removeprefix(f"{layers}.").partition(".")
    return f"{layers}.*{dot}{rest}" if number.isdigit() else path


def _weights(module: nn.Module) -> str:
    weights = [f"{name} {list(weight.shape)}" for name, weight in module.named_parameters(recurse=False)]
    return " · ".join([type(module).__name__, *weights])


def _returned(returned: Any) -> str:
    """The shape of what a module returned when it was surveyed, the call's own axes by name."""
    from torch import Tensor

    from cutaway.tracing.trial import BATCH, SEQ

    first = returned[0] if isinstance(returned, tuple) and returned else returned
    if not isinstance(first, Tensor):
        return ""
    names = {BATCH: "batch", SEQ: "seq", BATCH * SEQ: "batch·seq"}
    axes = [names.get(size, str(size)) if place < 2 else str(size) for place, size in enumerate(first.shape)]
    return f"[{' '.join(axes)}]"


def _value(subject: Subject, row: SupportRow) -> Part:
    host = HOSTS[row.host].format(layer="*")  # pyright: ignore[reportArgumentType]  # rows hold the host as a string
    sizes = subject.sizes_at(row.layers[0]) if row.layers else subject.sizes
    return Part(
        key=row.value,
        kind="value",
        name=row.value,
        native=f"{host}.{row.value}" if host else row.value,
        layout=f"{row.layout} {LAYOUTS[row.layout]}" if row.axes else row.layout,
        sizes=f"[{' '.join(str(sizes.get(axis, axis)) for axis in row.axes)}]" if row.axes else "",
        meaning=row.meaning,
        where=row.where,
        condition=row.condition + ("; " if row.condition and row.read_only else "") + "read-only" * row.read_only,
        missing=not row.available,
    )
