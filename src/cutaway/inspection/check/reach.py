"""Whether an edit has an effect: what is written into a value goes on to the next block, or to the logits.

In a batch of equal rows, each row has NaN written into another value, in every layer. A NaN goes through every weight,
so the row must be NaN where the next block begins, whatever the weights are; there each row is given again what the
last, in which nothing is edited, has, so that one pass tests all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from cutaway.errors import CheckError
from cutaway.inspection.check.places import Place, Tap, result_word, run
from cutaway.subject.subject import Subject


def _knows_nan(subject: Subject, place: Place) -> bool:
    """Whether a value is of floating point, as ids, masks and the numbers of experts are not."""
    address = place.address
    passing = subject.survey.passing[address.module_path, address.moment]
    return place.name != "attention_mask" and bool(getattr(address.read(passing), "is_floating_point", bool)())


class Reach:
    """The rows of one pass.

    Attributes:
        pending: what has been edited since the last block began, by row.
        cases: how many edits have arrived.
        independent: False once a row has changed in which nothing was edited, so that rows tell nothing.
    """

    def __init__(self, subject: Subject, at: Sequence[Place]) -> None:
        self._subject = subject
        self._at = [place for place in at if place.writable and _knows_nan(subject, place)]
        names = dict.fromkeys(place.paths[0].name for place in self._at)
        self._rows = {name: row for row, name in enumerate(names)}
        self.pending: dict[int, Place] = {}
        self.cases = 0
        self.independent = True

    def run(self, one: Mapping[str, Tensor]) -> None:
        """Runs the batch that is made of one row.

        Raises:
            CheckError: naming the value whose edit does not arrive.
        """
        inputs = {name: row.repeat(len(self._rows) + 1, 1) for name, row in one.items()}
        taps: list[Tap] = []
        for place in self._at:
            if place.paths[0].name == "layer_input":
                taps.append(
                    Tap(place.address.module, place.address.moment, self._begin(place), place.address.module_path)
                )
            taps.append(Tap(place.address.module, place.address.moment, self._edit(place), place.address.module_path))
        self._arrived(run(self._subject, inputs, taps), f"the {result_word(self._subject)}")

    def _edit(self, place: Place) -> Callable[[Any], Any]:
        row = self._rows[place.paths[0].name]

        def edit(passing: Any) -> Any:
            new = place.address.read(passing).clone()
            new[row] = float("nan")
            self.pending[row] = place
            return place.address.write(passing, new)

        return edit

    def _begin(self, place: Place) -> Callable[[Any], Any]:
        """What is attached at the entrance of a block."""

        def begin(passing: Any) -> Any:
            stream = place.address.read(passing)
            self._arrived(stream, f"`{place.name}`")
            return place.address.write(passing, stream[-1:].expand_as(stream).clone())

        return begin

    def _arrived(self, found: Tensor, where: str) -> None:
        broken = found.isnan().flatten(1).any(dim=1).tolist()
        self.independent = self.independent and not broken[-1]
        if not self.independent:
            return
        for row, place in self.pending.items():
            if not broken[row]:
                raise CheckError(
                    f"an edit of `{place.name}` does not arrive: NaN written into all of it at "
                    f"{place.address.describe()} does not come through to {where}.",
                    value=place.name,
                )
        self.cases += sum(len(place.paths) for place in self.pending.values())
        self.pending.clear()
