"""The parts of a block and of the stack around it, found in a model.

Modules and values come from the family file; their shapes from the survey
of a checkpoint's model on the meta device. Operations are what happens between them and has no name of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.operations import operations_of
from cutaway.encyclopedia.part import Part
from cutaway.vocabulary import HOSTS, LAYOUTS, MODULES, Host

if TYPE_CHECKING:
    from torch import nn

    from cutaway.inspection.rows import SupportRow
    from cutaway.inspection.support import Support
    from cutaway.model import StandardizedTransformer
    from cutaway.subject.subject import Subject

Parts = Mapping[str, Part]
"""All parts by their keys, in the order of a pass."""


def parts_of(model: StandardizedTransformer, support: Support) -> Parts:
    """Every part of a model's stack and of one of its blocks."""
    subject = model._subject
    found = [*_modules(subject), *(_value(subject, row) for row in support), *operations_of(model)]
    return {part.key: part for part in found}


def own_modules(subject: Subject, host: Host) -> list[str]:
    """The family's own names of the modules right on a host that have no standard name and hold weights."""
    holder = subject.modules[subject.host_path(host, 0)]
    standard = {path.split(".")[0] for path in subject.family.modules.get(host, {}).values()}
    return [
        name
        for name, child in holder.named_children()
        if name not in standard and any(True for _ in child.parameters())
    ]


def position_embedding(subject: Subject) -> str:
    """The path of a learned position embedding beside the token embedding; empty where there is none."""
    from torch import nn

    path = subject.module_path("model", None, "embed_tokens")
    parent, _, own = path.rpartition(".")
    beside = subject.modules[parent].named_children()
    found = [name for name, child in beside if isinstance(child, nn.Embedding) and name != own]
    return f"{parent}.{found[0]}" if found else ""


def _modules(subject: Subject) -> list[Part]:
    found: list[Part] = []
    for host, names in subject.family.modules.items():
        layer = None if host == "model" else 0
        for name in names:
            path = subject.module_path(host, layer, name)
            found.append(_module(subject, f"{host}.{name}", name, path, MODULES[name].meaning))
        if host in ("attention", "mlp"):
            for name in own_modules(subject, host):
                path = f"{subject.host_path(host, layer)}.{name}"
                found.append(_module(subject, f"{host}.{name}", name, path, _meaning_of_own(host, subject)))
    positions = position_embedding(subject)
    if positions:
        meaning = "a learned vector for each position, added to the token's at the entrance"
        found.append(_module(subject, "model.positions", positions.rpartition(".")[2], positions, meaning))
    return found


def _meaning_of_own(host: Host, subject: Subject) -> str:
    if host == "mlp":
        return "the projection from the stream to the neurons; it keeps the family's own name"
    if "q_proj" not in subject.family.modules["attention"]:
        return "one projection for queries, keys and values; it keeps the family's own name"
    return "a module of the attention that keeps the family's own name"


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
    layers = subject.family.modules["model"]["layers"]
    return path.replace(f"{layers}.0", f"{layers}.*", 1)


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
    names = {BATCH: "batch", SEQ: "seq"}
    axes = [names.get(size, str(size)) if place < 2 else str(size) for place, size in enumerate(first.shape)]
    return f"[{' '.join(axes)}]"


def _value(subject: Subject, row: SupportRow) -> Part:
    host = HOSTS[row.host].format(layer="*")  # pyright: ignore[reportArgumentType]  # rows hold the host as a string
    sizes = [str(subject.sizes.get(axis, axis)) for axis in row.axes]
    return Part(
        key=row.value,
        kind="value",
        name=row.value,
        native=f"{host}.{row.value}" if host else row.value,
        layout=f"{row.layout} {LAYOUTS[row.layout]}" if row.axes else row.layout,
        sizes=f"[{' '.join(sizes)}]" if row.axes else "",
        meaning=row.meaning,
        where=row.where,
        condition=row.condition + ("; " if row.condition and row.read_only else "") + "read-only" * row.read_only,
        missing=not row.available,
    )
