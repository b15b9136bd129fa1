"""Paths of values: writing them, reading them, and picking them with `*`.

`layers.3.self_attn.attention_queries` is the path of one value; `layers.*.mlp.mlp_output` picks one in every layer;
a bare name of the vocabulary, `mlp_output`, picks it wherever it hangs.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cutaway.errors import UnknownValueError
from cutaway.vocabulary.elsewhere import near
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

    @property
    def sources(self) -> tuple[ValuePath, ...]:
        """The values that a derived one is computed from, of the same layer or of the model."""
        names = self.value.derived_from or ()
        return tuple(ValuePath(name, None if VALUES[name].host == "model" else self.layer) for name in names)

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

    Layers may be counted from the end (`layers.-1.layer_output`) and be taken in slices (`layers.1:3.layer_output`),
    and a path may be written as an expression is, `layers[-1].layer_output`.

    Raises:
        UnknownValueError: a selector picks nothing; the message lists near names.
    """
    if isinstance(selectors, str) or callable(selectors):
        selectors = [selectors]
    num_layers = 1 + max((path.layer for path in available if path.layer is not None), default=-1)
    picked: set[ValuePath] = set()
    for selector in selectors:
        matches = matching(selector, available, num_layers)
        if not matches:
            raise UnknownValueError(_nothing_matches(selector, available, num_layers))
        picked.update(matches)
    return [path for path in available if path in picked]


def matching(selector: Selector, available: Sequence[ValuePath], num_layers: int) -> list[ValuePath]:
    """The available paths that one selector picks; none is no error."""
    if not isinstance(selector, str):
        return [path for path in available if not path.value.only_named and selector(str(path))]
    patterns = spelled_out(selector, num_layers)
    return [path for path in available if selector == path.name or any(_matches(path, pattern) for pattern in patterns)]


def _matches(path: ValuePath, pattern: str) -> bool:
    """Whether a pattern picks a path. A value that is `only_named` is not picked by a `*` in its name's place."""
    if not fnmatch.fnmatchcase(str(path), pattern):
        return False
    name = pattern.rpartition(".")[2]
    return not path.value.only_named or (fnmatch.fnmatchcase(path.name, name) and bool(name.strip("*?")))


_INDEX = re.compile(r"(?<=\w)\[\s*(-?\d*\s*(?::\s*-?\d*\s*){0,2})\]")
"""An index or a slice, as in an expression; `[0-2]` behind a dot is a class of characters."""

_RANGE = re.compile(r"-?\d*:-?\d*(?::-?\d*)?")


def spelled_out(selector: str, num_layers: int) -> list[str]:
    """The paths or patterns that a selector stands for, with layers counted from the front: one for each of a slice."""
    selector = _INDEX.sub(lambda found: f".{found[1].replace(' ', '')}", selector)
    head, _, rest = selector.partition(".")
    part, dot, tail = rest.partition(".")
    if head != "layers":
        return [selector]
    if re.fullmatch(r"-\d+", part):
        return [f"layers.{num_layers + int(part)}{dot}{tail}"]
    if _RANGE.fullmatch(part):
        bounds = (int(bound) if bound else None for bound in part.split(":"))
        return [f"layers.{layer}{dot}{tail}" for layer in range(num_layers)[slice(*bounds)]]
    return [selector]


def picks_one(selector: str) -> bool:
    """Whether a selector is written as one path, so that it can stand for no more than one thing."""
    several = any(sign in selector for sign in "*?:") or ("." not in selector and _hangs_on_layers(selector))
    return not several and ".[" not in selector


def _hangs_on_layers(name: str) -> bool:
    return name in VALUES and VALUES[name].host != "model"


def _nothing_matches(selector: Selector, available: Sequence[ValuePath], num_layers: int) -> str:
    if not isinstance(selector, str):
        return "the function given picks none of this model's values; it is called with paths such as " + (
            f"'{available[-1]}'" if available else "'logits'"
        )
    return f"nothing is called '{selector}'.{near_paths(selector, available, num_layers)}"


def near_paths(selector: str, available: Sequence[ValuePath], num_layers: int) -> str:
    """A sentence that offers what is near to a selector that picks nothing, with a space before it."""
    spelled = (spelled_out(selector, num_layers) or [selector])[0]
    head, _, last = spelled.rpartition(".")
    layers = head.split(".")
    if last in VALUES:
        same = [path for path in available if path.name == last]
        beside = [path for path in same if path.layer is None or str(path.layer) in layers]
        if beside:
            return f" Did you mean '{beside[0]}'?"
        if same and not any(layer.isdigit() for layer in layers):
            return f" Did you mean '{_pattern(same[0])}'?"
    if outside(spelled, num_layers):
        spelled = ".".join(("layers", str(num_layers - 1), *layers[2:], last))
        known = [str(path) for path in available]
        return layers_there(num_layers) + (f" Did you mean '{spelled}'?" if spelled in known else near(spelled, known))
    names = sorted({path.name for path in available})
    paths = [_pattern(path) if "*" in selector else str(path) for path in available]
    return near(selector, [*names, *paths])


def outside(path: str, num_layers: int) -> bool:
    """Whether a path names a layer that is not there."""
    found = re.match(r"layers\.(-?\d+)(\.|$)", path)
    return found is not None and not 0 <= int(found[1]) < num_layers


def layers_there(num_layers: int) -> str:
    """A sentence that says which layers there are, with a space before it."""
    return f" There are {num_layers} layers, 0 to {num_layers - 1}."


def _pattern(path: ValuePath) -> str:
    return str(path) if path.layer is None else str(path).replace(f".{path.layer}.", ".*.", 1)
