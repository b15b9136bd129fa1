"""What `support()` found, as data: one row a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from cutaway.errors import UnknownValueError
from cutaway.vocabulary import HOSTS, VALUES, WEIGHTS
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


@dataclass(frozen=True, repr=False)
class WeightRow:
    """What is known of one weight here.

    Attributes:
        layers: the layers that have it; empty for a weight of the model, and for one that does not exist.
        where: where it is kept, or for a missing one, why it is missing.
    """

    weight: str
    host: str
    axes: tuple[str, ...]
    meaning: str
    available: bool
    layers: tuple[int, ...]
    where: str

    def __repr__(self) -> str:
        host = HOSTS[WEIGHTS[self.weight].host].format(layer="*")
        head = f"{f'{host}.' if host else ''}{self.weight}  [{' '.join(self.axes)}], read-only"
        return f"{head}\n  {self.meaning}\n  {'kept in: ' if self.available else 'not here: '}{self.where}"


@dataclass(frozen=True)
class SupportRows:
    """The rows, one a value, in the order of the vocabulary; and one a weight, which are there without a pass."""

    model: str
    load: str
    rows: tuple[SupportRow, ...]
    weights: tuple[WeightRow, ...] = ()

    def __iter__(self) -> Iterator[SupportRow]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> SupportRow:
        for row in self.rows:
            if row.value == name:
                return row
        hint = near(name, [row.value for row in self.rows])
        raise UnknownValueError(f"the vocabulary has no value called `{name}`.{hint}")

    def weight(self, name: str) -> WeightRow:
        """The row of a weight, `W_Q` say.

        Raises:
            UnknownValueError: no weight is called so.
        """
        for row in self.weights:
            if row.weight == name:
                return row
        raise UnknownValueError(
            f"the vocabulary has no weight called `{name}`.{near(name, [row.weight for row in self.weights])}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, fit for JSON."""
        return {
            "model": self.model,
            "load": self.load,
            "values": [asdict(row) for row in self.rows],
            "weights": [asdict(row) for row in self.weights],
        }
