"""Every class of transformers that decodes, as the catalogue found it: what the page of all classes is made of.

The data is a file of the package that `make families` writes; it tells of tiny random models of each class.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.inspection.numbers import ranges

DATA = Path(__file__).parents[1] / "data" / "families.json"
"""What the catalogue found."""


@dataclass(frozen=True)
class Reason:
    """Why something is not claimed of a class: what it is, on which layers, and what was measured or seen."""

    claim: str
    why: str


@dataclass(frozen=True)
class ClassRow:
    """A class.

    Attributes:
        name: the class's name.
        model_type: transformers' word for its config.
        images: whether it is mapped to text from images, and tried on text alone.
        state: "opened", or why it was not: "refused", "not run", "not built".
        family: the family whose file covers it; empty where it is derived.
        layers: what its layers are, a line a kind.
        sum: whether the stated sum is the block's output: "exact", "on some layers", "none".
        values: how many values of the vocabulary it has.
        reasons: what of it is not claimed, and why; of one that was not opened, why not.
    """

    name: str
    model_type: str
    images: bool
    state: str
    family: str = ""
    layers: tuple[str, ...] = ()
    sum: str = ""
    values: int = 0
    reasons: tuple[Reason, ...] = ()

    @property
    def found(self) -> str:
        """How it opens, in a word to filter by."""
        if self.state != "opened":
            return "not opened"
        return "from a file" if self.family else "derived"


@dataclass(frozen=True)
class Classes:
    """All classes, with the versions that they were tried with."""

    versions: Mapping[str, str]
    rows: tuple[ClassRow, ...]

    @property
    def counts(self) -> Counter[str]:
        """How many classes are opened in which way, and of how many the sum is exact."""
        return Counter([row.found for row in self.rows] + [f"sum {row.sum}" for row in self.rows if row.sum])


def all_classes(path: Path = DATA) -> Classes | None:
    """What the catalogue found; None where there is no such file."""
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    return Classes(data["versions"], tuple(_row(row) for row in data["classes"]))


def _row(found: Mapping[str, Any]) -> ClassRow:
    who = (found["class"], found["name"].partition(":")[0], found["images"], found["state"])
    if found["state"] != "opened":
        return ClassRow(*who, reasons=(Reason(found["state"], _in_a_line(found["reason"])),))
    kinds = found["layers"]
    return ClassRow(
        *who,
        family="" if found["derived"] else found["family"],
        layers=tuple(_layers(kind, len(kinds)) for kind in kinds),
        sum=_sum(found, kinds),
        values=found["values"],
        reasons=tuple(_reasons(found, kinds)),
    )


def _layers(kind: Mapping[str, Any], of: int) -> str:
    return kind["what"] if of == 1 else f"{ranges(kind['layers'])}: {kind['what']}"


def _sum(found: Mapping[str, Any], kinds: Sequence[Mapping[str, Any]]) -> str:
    if found["sum_exact"]:
        return "exact"
    return "on some layers" if any(kind["sum"] for kind in kinds) else "none"


def _reasons(found: Mapping[str, Any], kinds: Sequence[Mapping[str, Any]]) -> list[Reason]:
    told = [
        Reason(f"the sum{_on(kind['layers'], len(kinds))}", _in_a_line(kind["no_sum"]))
        for kind in kinds
        if kind["no_sum"]
    ]
    return told + [
        Reason(f"{off['claim']}{_on(off['layers'], len(off['layers']) + 1)}", _in_a_line(off["why"]))
        for off in found["taken_off"]
    ]


def _on(layers: Sequence[int], kinds: int) -> str:
    return f" on layer{'s' if len(layers) > 1 else ''} {ranges(layers)}" if layers and kinds > 1 else ""


def _in_a_line(text: str) -> str:
    return " ".join(text.split())
