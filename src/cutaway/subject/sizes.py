"""The sizes of a layer, measured on what passes there: of what a config leaves out, or where layers differ."""

from __future__ import annotations

from collections.abc import Mapping

from cutaway.subject.places import Places
from cutaway.subject.survey import Survey
from cutaway.vocabulary import VALUES


def measured_sizes(survey: Survey, places: Places, sizes: Mapping[str, int], layer: int | None) -> dict[str, int]:
    """The lengths of the axes of what passes on a layer; none around the layers, for None."""
    measured: dict[str, int] = {}
    for name, site in places.family(layer).values.items():
        value = VALUES[name]
        if layer is None or value.host == "model" or site.slot.split or site.slot.folded:
            continue
        passing = survey.passing.get((places.of_site(value.host, layer, site), site.moment))
        shape = getattr(None if passing is None else site.slot.read(passing, sizes), "shape", ())
        if len(shape) == len(value.layout.axes):
            for axis, length in zip(value.layout.axes, shape, strict=True):
                if axis not in _OF_THE_MODEL and axis not in _OF_THE_CALL:
                    measured.setdefault(axis, length)
    return measured


_OF_THE_MODEL = ("num_layers", "hidden_size", "vocab_size")
"""The sizes that are one for all layers, and are not measured on each."""

_OF_THE_CALL = ("batch", "seq", "query", "key")
"""The axes whose lengths are those of a call."""
