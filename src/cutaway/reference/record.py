"""Keeping the values of a pass: every module says what it has computed, and a recorder copies what was asked for.

What is kept is a copy, so that the pass can go on working in place and a user can change one value without another
changing with it (on Phi, `attention_norm_output`, `mlp_norm_output` and `mlp_input` are one and the same array).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import UnavailableValueError
from cutaway.reference.parts import Array
from cutaway.vocabulary import COMMON, ValuePath, all_paths, select_paths
from cutaway.vocabulary.paths import Selector

Recorded = NDArray[Any] | Callable[[], NDArray[Any]]
"""An array; or a function that computes one that the pass itself does not need."""

Record = Callable[[str, Recorded], None]
"""Told each value's name and array as it is computed."""

UNAVAILABLE = {
    "layer_mid": "Phi's block is parallel: attention and MLP both read the normed block input and are summed at the "
    "block's end, so there is no stream between them. The stream before is `layer_input`, the one after `layer_output`"
}
"""The words of the vocabulary that Phi does not have, each with the reason."""


class Values(dict[str, NDArray[Any]]):
    """A pass's values: a mapping from path to array, in the order of the pass; `logits` is always among them."""

    @property
    def logits(self) -> Array:
        """`[batch seq vocab_size]`."""
        return self["logits"]


def ignore(name: str, array: Recorded) -> None:
    """The record of a pass of which no value was asked."""


class Recorder:
    """Copies the wanted values of a pass.

    Args:
        selectors: paths, patterns with `*`, bare names, or functions of a path, as `select_paths` takes them.
        num_layers: blocks of the model.

    Raises:
        UnknownValueError: a selector picks nothing.
        UnavailableValueError: a selector names a value that Phi does not have.
    """

    def __init__(self, selectors: Selector | Sequence[Selector], num_layers: int) -> None:
        if isinstance(selectors, str) or callable(selectors):
            selectors = [selectors]
        for selector in selectors:
            name = selector.rpartition(".")[2] if isinstance(selector, str) else ""
            if name in UNAVAILABLE:
                raise UnavailableValueError(f"`{name}` does not exist on Phi: {UNAVAILABLE[name]}")
        self._kept: dict[ValuePath, NDArray[Any]] = {}
        self.wanted = [ValuePath("logits", None)]
        if not selectors:
            return
        available = all_paths(num_layers, [name for name in COMMON if name not in UNAVAILABLE])
        self.wanted = select_paths([*selectors, "logits"], available)

    def at(self, layer: int | None) -> Record:
        """The record of one layer, or, for None, of the model."""
        names = {path.name for path in self.wanted if path.layer == layer} - {"logits"}
        if not names:
            return ignore

        def record(name: str, array: Recorded) -> None:
            if name in names:
                made = array() if callable(array) else array
                self._kept[ValuePath(name, layer)] = np.array(made, order="C")

        return record

    def values(self, logits: Array) -> Values:
        """What was kept, and the logits, in the order of the pass."""
        return Values({str(path): logits if path.name == "logits" else self._kept[path] for path in self.wanted})
