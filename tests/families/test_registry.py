"""The family files as data, the error for what has none, and families written elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from transformers import MistralConfig

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, UnsupportedModelError
from cutaway.families import FAMILIES, register
from cutaway.vocabulary import COMMON, MODULES

FILES = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(before)


@FILES
def test_a_file_has_a_site_or_a_reason_for_every_value(name: str) -> None:
    family = FAMILIES[name]
    direct = {value.name for value in COMMON.values() if not value.derived}
    kinds = [family.with_kinds([kind]) for kind in family.kinds] or [family]
    for one in kinds:
        assert direct <= set(one.values) | set(one.unavailable)
        assert not set(one.values) & set(one.unavailable)
    assert set(family.stream) == {"layer_input", "attention_output", "mlp_output"}


@FILES
def test_a_file_speaks_of_standard_modules_alone(name: str) -> None:
    family = FAMILIES[name]
    for host, modules in family.modules.items():
        assert all(MODULES[module].host == host for module in modules)
    named = {module for modules in family.modules.values() for module in modules}
    sites = [*family.values.values(), *(site for variant in family.variants for site in variant.values.values())]
    assert {site.module for site in sites} - {""} <= named


@FILES
def test_a_file_lists_checkpoints_by_their_hub_ids(name: str) -> None:
    checkpoints = FAMILIES[name].checkpoints
    assert checkpoints
    assert all(checkpoint.count("/") == 1 for checkpoint in checkpoints)
    assert len(set(checkpoints)) == len(checkpoints)


def _mistral() -> MistralConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    return MistralConfig(vocab_size=64, num_key_value_heads=2, **sizes)


def test_a_family_written_elsewhere_is_registered(own_registry: None) -> None:
    register(replace(FAMILIES["llama"], name="mistral", architectures=("MistralForCausalLM",)))
    with pytest.raises(UnsupportedModelError, match="`sliding_window` to 4096"):
        StandardizedTransformer(_mistral(), dispatch=False)


def test_a_name_or_an_architecture_is_covered_once(own_registry: None) -> None:
    with pytest.raises(CutawayError, match="'llama' stands for LlamaForCausalLM already"):
        register(replace(FAMILIES["llama"], name="another"))
    with pytest.raises(CutawayError, match="'llama' stands for llama already"):
        register(replace(FAMILIES["llama"], architectures=("OtherForCausalLM",)))
