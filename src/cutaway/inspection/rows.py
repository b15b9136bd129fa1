"""What `support()` found, as data: one row a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from cutaway.errors import UnknownValueError
from cutaway.vocabulary import HOSTS, VALUES
from cutaway.vocabulary.elsewhere import near


@dataclass(frozen=True, repr=False)
class SupportRow:
    """What is known of one value here.

    Attributes:
        layers: the layers that have it; empty for a value of the model, and for one that does not exist.
        where: where it is read, or for a missing one, why it is missing.
        condition: what holds of it under this load only; empty where nothing does.
        rare: whether it is of some families alone.
    """

    value: str
    host: str
    layout: str
    axes: tuple[str, ...]
    meaning: str
    available: bool
    read_only: bool
    layers: tuple[int, ...]
    where: str
    condition: str
    rare: bool = False

    def __repr__(self) -> str:
        path = f"{host}.{self.value}" if (host := HOSTS[VALUES[self.value].host].format(layer="*")) else self.value
        axes = f"{self.layout} [{' '.join(self.axes)}]" if self.axes else self.layout
        lines = [f"{path}  {axes}{', read-only' if self.read_only else ''}", f"  {self.meaning}"]
        lines.append(f"  {'read at: ' if self.available else 'not here: '}{self.where}")
        return "\n".join([*lines, *([f"  {self.condition}"] if self.condition else [])])


@dataclass(frozen=True)
class SupportRows:
    """The rows, one a value, in the order of the vocabulary."""

    model: str
    load: str
    rows: tuple[SupportRow, ...]

    def __iter__(self) -> Iterator[SupportRow]:
        return iter(self.rows)

    def __getitem__(self, value: str) -> SupportRow:
        for row in self.rows:
            if row.value == value:
                return row
        hint = near(value, [row.value for row in self.rows])
        raise UnknownValueError(f"the vocabulary has no value called `{value}`.{hint}")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, fit for JSON."""
        return {"model": self.model, "load": self.load, "values": [asdict(row) for row in self.rows]}
