"""The kinds of layers of a model that are drawn each by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutaway.encyclopedia.shapes import Shape, shape_at
from cutaway.encyclopedia.wiring import Wiring, wiring_at
from cutaway.inspection.kinds import kinds_of
from cutaway.inspection.numbers import ranges
from cutaway.vocabulary import Host

if TYPE_CHECKING:
    from cutaway.subject.subject import Subject


@dataclass(frozen=True)
class LayerKind:
    """Layers that are built alike.

    Attributes:
        number: its place among the kinds, from 1.
        words: what such a layer has: "attention and experts".
        layers: their numbers.
        of: how many layers the model has.
        wiring: how it is wired.
        shapes: what each of its sublayers is like.
    """

    number: int
    words: str
    layers: tuple[int, ...]
    of: int
    wiring: Wiring
    shapes: Mapping[Host, Shape]

    @property
    def layer(self) -> int:
        """The first of them, which stands for all."""
        return self.layers[0]

    @property
    def told(self) -> str:
        """Which layers they are: `layers 0, 2, ... 46`."""
        numbers = ranges(self.layers)
        if len(numbers) > _LONG:
            return f"{len(self.layers)} of {self.of} layers"
        return f"layer{'s' if len(self.layers) > 1 else ''} {numbers}"


_LONG = 30
"""Letters beyond which the numbers of layers are no heading any more."""


def layer_kinds(subject: Subject) -> list[LayerKind]:
    """The kinds of layers of a model, by their first layers; kinds that are built alike are one."""
    found: list[LayerKind] = []
    for words, layers in kinds_of(subject).items():
        wiring = wiring_at(subject, layers[0])
        shapes: dict[Host, Shape] = {b.host: shape_at(subject, b.host, layers[0]) for b in wiring.branches}
        alike = next((kind for kind in found if (kind.wiring, kind.shapes) == (wiring, shapes)), None)
        if alike is None:
            kind = LayerKind(len(found) + 1, words, tuple(layers), subject.sizes["num_layers"], wiring, shapes)
            found.append(kind)
        else:
            both = tuple(sorted((*alike.layers, *layers)))
            name = words.partition(" (")[0]
            found[alike.number - 1] = LayerKind(alike.number, name, both, alike.of, wiring, shapes)
    return found
