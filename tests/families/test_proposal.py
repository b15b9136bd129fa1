"""`propose` on architectures without a family file, and on those with one, whose file it must find again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, PretrainedConfig

from cutaway import StandardizedTransformer
from cutaway.errors import UnsupportedModelError
from cutaway.families import FAMILIES, Family, propose, register
from cutaway.vocabulary import COMMON
from tests.families.models import CONFIGS

_SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
_USUAL = {**_SIZES, "intermediate_size": 96, "max_position_embeddings": 48, "initializer_range": 0.3, "pad_token_id": 0}


def _usual(name: str, **more: Any) -> Callable[[], PretrainedConfig]:
    return lambda: getattr(transformers, f"{name}Config")(**{**_USUAL, "num_key_value_heads": 2, **more})


WHOLE = {
    "Mistral": _usual("Mistral"),
    "Qwen2": _usual("Qwen2"),
    "Qwen3": _usual("Qwen3", head_dim=16),
    "Gemma": _usual("Gemma", head_dim=16),
    "Phi3": _usual("Phi3"),
    "Starcoder2": _usual("Starcoder2"),
    "Cohere": _usual("Cohere"),
    "Olmo2": _usual("Olmo2"),
    "Gemma2": _usual("Gemma2", head_dim=16),
    "Granite": _usual("Granite", residual_multiplier=0.22),
}
"""Those whose every value follows from structure; `layer_mid` of the parallel one does not exist."""

IN_PART = {
    "Falcon": (
        lambda: transformers.FalconConfig(**_SIZES),
        "attention_queries",
        "No attention function of transformers'",
    ),
    "Bloom": (
        lambda: transformers.BloomConfig(vocab_size=64, hidden_size=32, n_layer=3, n_head=4),
        "attention_keys",
        "calls no function of transformers'",
    ),
    "Mixtral": (_usual("Mixtral", num_local_experts=4), "mlp_neurons", "is a mixture of experts"),
    "OpenAIGPT": (
        lambda: transformers.OpenAIGPTConfig(vocab_size=64, n_embd=32, n_layer=3, n_head=4),
        "mlp_norm_output",
        "No norm was seen right before the MLP",
    ),
}
"""Those for which something is unavailable: a value, and words of the reason."""


@pytest.fixture
def own_registry() -> Iterator[None]:
    before = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(before)


def saved(text: str) -> Family:
    """The family of a file, as it is once the file is saved and imported."""
    names: dict[str, Any] = {}
    exec(compile(text, "proposal.py", "exec"), names)
    (family,) = (value for value in names.values() if isinstance(value, Family))
    return family


@pytest.mark.parametrize("name", WHOLE)
def test_the_draft_of_an_easy_architecture_works_once_registered(name: str, own_registry: None) -> None:
    family = saved(propose(WHOLE[name]()))
    register(family, replace=True)
    model = StandardizedTransformer(WHOLE[name]())  # its check puts every promise to the test, bit for bit
    lacks = {row.value for row in model.support() if not row.available and row.value in COMMON}
    assert lacks == {"Cohere": {"layer_mid"}, "Olmo2": {"attention_norm_output", "mlp_norm_output"}}.get(name, set())
    assert not model._subject.family.derived


@pytest.mark.parametrize("name", IN_PART)
def test_what_was_not_found_is_unavailable_with_a_reason(name: str) -> None:
    make, value, reason = IN_PART[name]
    family = saved(propose(make()))
    assert reason in family.unavailable[value]
    direct = {value.name for value in COMMON.values() if not value.derived}
    assert direct <= set(family.values) | set(family.unavailable)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "neox", "neox-sequential"])
def test_the_draft_of_a_covered_architecture_is_its_file(kind: str) -> None:
    config = CONFIGS[kind]()
    drafted = saved(propose(config))
    written = next(f for f in FAMILIES.values() if f.architectures == drafted.architectures).of_config(config)
    if "gate_proj" not in written.modules["mlp"]:  # the file is silent on the up projection of an MLP without a gate
        drafted.modules["mlp"].pop("up_proj")  # type: ignore[attr-defined]
    assert drafted.modules == written.modules
    assert drafted.stream == written.stream
    assert {name: site.module for name, site in drafted.values.items()} == {
        name: site.module for name, site in written.values.items()
    }
    assert {name: site.moment for name, site in drafted.values.items()} == {
        name: site.moment for name, site in written.values.items()
    }
    assert drafted.native_sizes(config) == written.native_sizes(config)


def test_a_draft_of_a_loaded_model_leaves_it_as_it_was() -> None:
    hf = AutoModelForCausalLM.from_config(WHOLE["Mistral"](), attn_implementation="sdpa")
    weights = {name: id(parameter) for name, parameter in hf.named_parameters()}
    assert propose(hf) == propose(WHOLE["Mistral"]())
    assert hf.config._attn_implementation == "sdpa"
    assert weights == {name: id(parameter) for name, parameter in hf.named_parameters()}
    assert not any(module._forward_hooks for module in hf.modules())
    assert "cutaway:propose" not in transformers.AttentionInterface._global_mapping


def test_guesses_and_settings_are_marked() -> None:
    text = propose(WHOLE["Mistral"]())
    assert text.count("# to check:") >= 2
    assert '"sliding_window",  # here 4096' in text
    assert "transformers/models/mistral/modeling_mistral.py" in text


def test_a_model_without_blocks_is_refused() -> None:
    hf = AutoModelForCausalLM.from_config(WHOLE["Mistral"]())
    hf.model.layers = torch.nn.Sequential()
    with pytest.raises(UnsupportedModelError, match="no list of blocks"):
        propose(hf)


def test_a_model_with_an_encoder_is_refused() -> None:
    sizes = {"vocab_size": 64, "d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 8}
    with pytest.raises(UnsupportedModelError, match="has an encoder and a decoder"):
        StandardizedTransformer(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).eval())
