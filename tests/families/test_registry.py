"""The family files as data, the error for what has none, and families written elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, MistralConfig

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, UnsupportedModelError
from cutaway.families import FAMILIES, register
from cutaway.vocabulary import MODULES, COMMON

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
    assert set(family.values) | set(family.unavailable) == direct
    assert not set(family.values) & set(family.unavailable)
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


def test_an_uncovered_model_is_refused_with_what_to_write_and_how_to_begin() -> None:
    says = r"no family file covers MistralForCausalLM\. Covered: PhiForCausalLM, LlamaForCausalLM, .*"
    says += r"`print\(cutaway\.families\.propose\(model\)\)`.*`cutaway\.families\.register\(family\)`"
    for source in (AutoModelForCausalLM.from_config(_mistral()), _mistral()):
        with pytest.raises(UnsupportedModelError, match=says):
            StandardizedTransformer(source)


def test_an_uncovered_checkpoint_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    config = _mistral()
    config.architectures = ["MistralForCausalLM"]
    config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"is a MistralForCausalLM, which no family file covers.*propose"):
        StandardizedTransformer(tmp_path)


def test_a_family_written_elsewhere_is_registered(own_registry: None) -> None:
    register(replace(FAMILIES["llama"], name="mistral", architectures=("MistralForCausalLM",)))
    with pytest.raises(UnsupportedModelError, match="`sliding_window` to 4096"):
        StandardizedTransformer(_mistral(), dispatch=False)


def test_a_name_or_an_architecture_is_covered_once(own_registry: None) -> None:
    with pytest.raises(CutawayError, match="'llama' stands for LlamaForCausalLM already"):
        register(replace(FAMILIES["llama"], name="another"))
    with pytest.raises(CutawayError, match="'llama' stands for llama already"):
        register(replace(FAMILIES["llama"], architectures=("OtherForCausalLM",)))
