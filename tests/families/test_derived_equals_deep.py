"""What is derived of a model is what its family's file says: the same values, tensor by tensor, and the same sum."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from cutaway.families import FAMILIES
from cutaway.families.stream import Sum, add_up
from tests.families.models import APART, CONFIGS, IDS, build

ALL = {**CONFIGS, **APART}
KINDS = pytest.mark.parametrize("kind", ALL)

ONLY_DERIVED: dict[str, dict[str, str]] = {}
"""By family, the values that deriving finds and the file does not have, and why the file is right."""

ONLY_DEEP: dict[str, dict[str, str]] = {}
"""By family, the values that the file has and deriving does not find, and why it cannot."""

OTHER: dict[str, dict[str, str]] = {}
"""By family, the values that both have and mean otherwise, and why."""


@lru_cache(maxsize=2)
def both(kind: str) -> tuple[StandardizedTransformer, StandardizedTransformer]:
    """One model as its family's file says, and as it is derived; of Falcon's kernel deriving sees no heads."""
    hf = build(ALL[kind](), "eager" if kind.startswith("falcon") else None)
    return StandardizedTransformer(hf), StandardizedTransformer(hf, family="derived")


def test_every_family_is_among_the_cases() -> None:
    models = (StandardizedTransformer(config(), dispatch=False) for config in ALL.values())
    assert {model._subject.family.name for model in models} == set(FAMILIES)


@KINDS
def test_the_values_are_the_same_tensors(kind: str) -> None:
    deep, derived = both(kind)
    family = deep._subject.family.name
    assert not deep._subject.family.derived
    assert derived._subject.family.derived
    assert _names(derived) - _names(deep) == set(ONLY_DERIVED.get(family, {}))
    assert _names(deep) - _names(derived) == set(ONLY_DEEP.get(family, {}))
    apart = {*ONLY_DERIVED.get(family, {}), *ONLY_DEEP.get(family, {}), *OTHER.get(family, {})}
    here, there = ({p: v for p, v in model.read(IDS).items() if _name(p) not in apart} for model in (deep, derived))
    assert set(here) == set(there)
    assert len(here) > 20
    assert not [path for path, value in here.items() if not _same(value, there[path])]


@KINDS
def test_the_sum_is_the_same(kind: str) -> None:
    deep, derived = both(kind)
    for layer in range(deep.num_layers):
        stated = deep._subject.family_at(layer).stream
        assert stated == derived._subject.family_at(layer).stream
        assert not stated or _equals_layer_output(deep, layer, stated)


def _equals_layer_output(model: StandardizedTransformer, layer: int, stated: Sum) -> bool:
    values = {_name(path): value for path, value in model.read(IDS).items() if path.startswith(f"layers.{layer}.")}
    return torch.equal(
        add_up(stated, values.__getitem__, lambda name: _learned(model, layer, name)), values["layer_output"]
    )


def _learned(model: StandardizedTransformer, layer: int, name: str) -> Tensor:
    return getattr(model.layers[layer].module, name)


def _names(model: StandardizedTransformer) -> set[str]:
    return {_name(path) for path in model.read(IDS)}


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _same(one: object, other: object) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) and isinstance(other, Tensor) else one == other
