"""What stands around the blocks: between the embedding and the first, and between the last and the logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from cutaway.encyclopedia.part import Part
from cutaway.encyclopedia.shapes import passed

if TYPE_CHECKING:
    from cutaway.subject.subject import Subject

POSITIONS = "model.positions"
"""The part that a learned position embedding is."""


@dataclass(frozen=True)
class Around:
    """The parts around the blocks that have no standard name, in the order of a pass.

    Attributes:
        entrance: modules and operations between the embedding and the first block.
        leaving: those between the last block and the head.
        logits: operations between the head and the logits.
        paths: the own path of each that is a module.
    """

    entrance: tuple[str, ...]
    leaving: tuple[str, ...]
    logits: tuple[str, ...]
    paths: dict[str, str]


def around(subject: Subject) -> Around:
    """What stands around a model's blocks."""
    order, entrance, leaving, paths = subject.survey.order, list[str](), list[str](), dict[str, str]()
    first = order.get((subject.host_path("layer", 0), "enter"), 0)
    modules = sorted(_own(subject), key=lambda path: order.get((path, "exit"), 0))
    for path in modules:
        learned = isinstance(subject.modules[path], nn.Embedding)
        key = POSITIONS if learned else f"model.{path.rpartition('.')[2]}"
        paths[key] = path
        (entrance if order[path, "exit"] < first else leaving).append(key)
    if _setting(subject, "embedding_multiplier"):
        entrance.insert(0, "model.scale")
    elif (
        not entrance
        and not hasattr(subject.hf.config, "embedding_multiplier")
        and not _flows_on(subject, "token_embeddings", None, "layer_input", 0)
    ):
        entrance.append("model.between")
    logits = [key for key, name in _ON_LOGITS.items() if _setting(subject, name)]
    return Around(tuple(entrance), tuple(leaving), tuple(logits), paths)


def operations_around(subject: Subject) -> Iterator[Part]:
    """The operations around the blocks."""
    found, config = around(subject), subject.hf.config
    for key in (*found.entrance, *found.logits):
        if key in found.paths:
            continue
        yield Part(key, "operation", _NAMES[key], meaning=_MEANINGS[key].format(setting=_told(config, key)))


def position_embedding(subject: Subject) -> str:
    """The path of a learned position embedding beside the token embedding; empty where there is none."""
    return around(subject).paths.get(POSITIONS, "")


def _own(subject: Subject) -> Iterator[str]:
    """The paths of the modules beside the blocks that hold weights, have no standard name, and that a pass calls."""
    parent = subject.module_path("model", None, "layers").rpartition(".")[0]
    standard = {subject.module_path("model", None, name) for name in subject.family.modules["model"]}
    for name, child in subject.modules[parent].named_children():
        path = f"{parent}.{name}" if parent else name
        called = (path, "exit") in subject.survey.order
        if path not in standard and called and any(True for _ in child.parameters()) and not _holds(path, standard):
            yield path


def _holds(path: str, standard: set[str]) -> bool:
    return any(other.startswith(f"{path}.") for other in standard)


def _flows_on(subject: Subject, value: str, layer: int | None, then: str, at: int | None) -> bool:
    """Whether one value is the other, the very tensor, in the survey's pass; so where nobody can tell."""
    one, other = passed(subject, value, layer), passed(subject, then, at)
    return one is None or other is None or one is other


def _setting(subject: Subject, name: str) -> Any:
    """What the config multiplies or caps by; None where it says nothing, or 1."""
    by = getattr(subject.hf.config, name, None)
    return by if isinstance(by, (int, float)) and by not in (0, 1) else None


def _told(config: Any, key: str) -> str:
    by = getattr(config, _SETTINGS.get(key, ""), None)
    return f"{by:g}" if isinstance(by, (int, float)) else ""


_ON_LOGITS = {
    "model.divided": "logits_scaling",
    "model.multiplied": "logit_scale",
    "model.softcap": "final_logit_softcapping",
}
"""Operations on the logits, each with the config key that asks for it."""

_SETTINGS = {**_ON_LOGITS, "model.scale": "embedding_multiplier"}

_NAMES = {
    "model.scale": "scale",
    "model.between": "between",
    "model.divided": "scale",
    "model.multiplied": "scale",
    "model.softcap": "soft cap",
}

_MEANINGS = {
    "model.scale": "the embeddings times {setting}, as they enter the first block",
    "model.between": "what is done to the embeddings before they enter the first block, by no module",
    "model.divided": "the head's output divided by {setting}",
    "model.multiplied": "the head's output times {setting}",
    "model.softcap": "keeps logits between −{setting} and {setting}, by {setting} · tanh(logit / {setting})",
}


def symbol_of(subject: Subject, key: str) -> str:
    """What is written on an operation around the blocks."""
    sign = {"model.scale": "× ", "model.multiplied": "× ", "model.divided": "÷ ", "model.softcap": "soft cap "}
    return f"{sign.get(key, '…')}{_told(subject.hf.config, key)}"
