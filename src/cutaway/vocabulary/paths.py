"""Paths of values: writing them, reading them, and picking them with `*`.

`layers.3.self_attn.attention_queries` is the path of one value; `layers.*.mlp.mlp_output` picks one in every layer;
a bare name of the vocabulary, `mlp_output`, picks it wherever it hangs.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cutaway.errors import UnknownValueError, did_you_mean
from cutaway.vocabulary.values import HOSTS, VALUES, Value

Selector = str | Callable[[str], bool]
"""What picks paths: a path, a pattern with `*`, a bare value name, or a function of the path."""


class ValuePath(NamedTuple):
    """A value in its place: its name, and its layer's number unless it hangs on the model."""

    name: str
    layer: int | None

    @property
    def value(self) -> Value:
        """The row of the vocabulary."""
        return VALUES[self.name]

    def __str__(self) -> str:
        host = HOSTS[self.value.host].format(layer=self.layer)
        return f"{host}.{self.name}" if host else self.name


def all_paths(num_layers: int, names: Iterable[str] = VALUES) -> list[ValuePath]:
    """The paths of these values in a model with this many layers, in the order of a forward pass."""
    wanted = set(names)
    rows = [value for value in VALUES.values() if value.name in wanted]
    first_in_layer = next((i for i, value in enumerate(rows) if value.host != "model"), len(rows))
    before = [ValuePath(v.name, None) for v in rows[:first_in_layer]]
    inside = [ValuePath(v.name, layer) for layer in range(num_layers) for v in rows if v.host != "model"]
    after = [ValuePath(v.name, None) for v in rows[first_in_layer:] if v.host == "model"]
    return before + inside + after


def select_paths(selectors: Selector | Sequence[Selector], available: Sequence[ValuePath]) -> list[ValuePath]:
    """The available paths that the selectors pick, in the order of `available`, each once.

    A layer may be counted from the end (`layers.-1.layer_output`).

    Raises:
        UnknownValueError: a selector picks nothing; the message lists near names.
    """
    if isinstance(selectors, str) or callable(selectors):
        selectors = [selectors]
    picked: set[ValuePath] = set()
    for selector in selectors:
        matches = [path for path in available if _picks(selector, path, available)]
        if not matches:
            raise UnknownValueError(_nothing_matches(selector, available))
        picked.update(matches)
    return [path for path in available if path in picked]


def _picks(selector: Selector, path: ValuePath, available: Sequence[ValuePath]) -> bool:
    if not isinstance(selector, str):
        return bool(selector(str(path)))
    if selector == path.name:
        return True
    return fnmatch.fnmatchcase(str(path), _count_from_end(selector, available))


def _count_from_end(selector: str, available: Sequence[ValuePath]) -> str:
    head, _, rest = selector.partition(".")
    number, _, tail = rest.partition(".")
    if head != "layers" or not number.startswith("-") or not number[1:].isdigit():
        return selector
    num_layers = 1 + max((path.layer for path in available if path.layer is not None), default=-1)
    return f"layers.{num_layers + int(number)}.{tail}"


def _nothing_matches(selector: Selector, available: Sequence[ValuePath]) -> str:
    if not isinstance(selector, str):
        return "the function given picks none of this model's values; it is called with paths such as " + (
            f"'{available[-1]}'" if available else "'logits'"
        )
    head, _, last = selector.rpartition(".")
    elsewhere = [path for path in available if path.name == last and str(path.layer) in head.split(".")]
    if elsewhere:
        return f"nothing is called '{selector}'. Did you mean '{elsewhere[0]}'?"
    names = sorted({path.name for path in available})
    paths = [_pattern(path) if "*" in selector else str(path) for path in available]
    return f"nothing is called '{selector}'.{did_you_mean(selector, [*names, *paths])}"


def _pattern(path: ValuePath) -> str:
    return str(path) if path.layer is None else str(path).replace(f".{path.layer}.", ".*.", 1)
