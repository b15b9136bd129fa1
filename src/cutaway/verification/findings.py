"""What `verify` found, as data: how far apart every value of every layer is, and where the two implementations part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from cutaway.verification.differences import Difference

if TYPE_CHECKING:
    from cutaway.verification.tolerances import Tolerance

Verdict = Literal["agrees", "parts", "follows", "drifts"]
"""`parts`: the step itself is another. `follows`: the step agrees, and what came before it did not. `drifts`: every
step so far agrees, and their roundings have added up to more than the tolerance."""


_GRAVEST_FIRST: tuple[Verdict, ...] = ("parts", "drifts", "follows", "agrees")


@dataclass(frozen=True)
class Compared:
    """One value in one place.

    Attributes:
        path: `layers.3.self_attn.attention_queries`.
        name: the value's name.
        layer: its layer; None on the model.
        whole: how far it is from the reference's, each implementation run from the prompt.
        step: how far it is from what the reference makes of the model's own values before it; None where it has none.
        tolerance: what `whole` was held against.
        verdict: see `Verdict`.
        reason: where it parts, the likely reason; empty where none could be told.
    """

    path: str
    name: str
    layer: int | None
    whole: Difference
    step: Difference | None
    tolerance: float
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class ValueRow:
    """One value over all layers, as the table shows it.

    `absolute` and `relative` are the largest differences of the whole pass, `step` the largest of a step, and `layer`
    is where the relative one is, or else the first that parts.
    """

    name: str
    layer: int | None
    absolute: float
    relative: float
    step: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Findings:
    """The two implementations side by side on one prompt.

    Attributes:
        model: the model's name.
        reference: where the reference's weights come from.
        dtype: what the model ran in.
        tokens: how many, padding left out.
        tolerance: of a step, and how it grows with the blocks before.
        compared: every value of every layer, in the order of the pass.
        remarks: what is no difference, and worth knowing.
    """

    model: str
    reference: str
    dtype: str
    tokens: int
    tolerance: Tolerance
    compared: Sequence[Compared]
    remarks: Sequence[str] = ()

    @property
    def agrees(self) -> bool:
        """Whether every value is within the tolerance."""
        return self.first is None

    @cached_property
    def first(self) -> Compared | None:
        """The first value that parts, in the order of the pass; None where all agree."""
        apart = [one for one in self.compared if one.verdict != "agrees"]
        return next((one for one in apart if one.verdict == "parts"), apart[0] if apart else None)

    @property
    def parted(self) -> list[Compared]:
        """All values whose own step is another."""
        return [one for one in self.compared if one.verdict == "parts"]

    @cached_property
    def rows(self) -> list[ValueRow]:
        """One row a value, in the order of the pass."""
        names = list(dict.fromkeys(one.name for one in self.compared))
        return [_row(name, [one for one in self.compared if one.name == name]) for name in names]

    def __getitem__(self, path: str) -> Compared:
        for one in self.compared:
            if one.path == path:
                return one
        raise KeyError(path)

    def to_dict(self) -> dict[str, Any]:
        """All figures as data that JSON can hold."""
        from dataclasses import asdict

        first = self.first
        return {
            "model": self.model,
            "reference": self.reference,
            "dtype": self.dtype,
            "tokens": self.tokens,
            "agrees": self.agrees,
            "first": first.path if first else None,
            "remarks": list(self.remarks),
            "values": [asdict(one) for one in self.compared],
        }


def _row(name: str, places: Sequence[Compared]) -> ValueRow:
    verdicts = {one.verdict for one in places}
    verdict: Verdict = next(one for one in _GRAVEST_FIRST if one in verdicts)
    # Where a step parts, the first place says more than the largest difference, which may be an echo of it.
    worst = (
        next(one for one in places if one.verdict == "parts")
        if verdict == "parts"
        else max(places, key=lambda one: one.whole.relative)
    )
    steps = [one.step.relative for one in places if one.step is not None]
    return ValueRow(
        name,
        worst.layer,
        max(one.whole.absolute for one in places),
        max(one.whole.relative for one in places),
        max(steps, default=None),
        verdict,
    )
