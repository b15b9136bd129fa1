"""The family files as data, the error for what has none, and families written elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText, LlamaConfig, LlamaForCausalLM, MistralConfig

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, UnavailableValueError, UnsupportedModelError
from cutaway.families import FAMILIES, Family, register
from cutaway.families.stream import names_in
from cutaway.sites import output_of
from cutaway.vocabulary import COMMON, LAYOUTS, MODULES, VALUES, Value

FILES = pytest.mark.parametrize("name", list(FAMILIES))


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(FAMILIES)
    values = dict(VALUES)
    yield
    FAMILIES.clear()
    FAMILIES.update(before)
    VALUES.clear()
    VALUES.update(values)


@FILES
def test_a_file_has_a_site_or_a_reason_for_every_value(name: str) -> None:
    family = FAMILIES[name]
    direct = {value.name for value in COMMON.values() if not value.derived}
    kinds = [family.with_kinds([kind]) for kind in family.kinds] or [family]
    for one in kinds:
        assert direct <= set(one.values) | set(one.unavailable)
        assert not set(one.values) & set(one.unavailable)
        assert (set(names_in(one.stream)) <= set(VALUES)) if one.stream else one.no_sum


@FILES
def test_a_file_speaks_of_standard_modules_where_there_are(name: str) -> None:
    """The family's own name stands where the standard one is that of another module, as in a block with norms after
    its sublayers."""
    family = FAMILIES[name]
    parts = (family, *family.variants, *family.kinds)
    named = {module for part in parts for modules in part.modules.values() for module in modules}
    for part in parts:
        for host, modules in part.modules.items():
            assert all(MODULES[module].host == host for module in modules)
        assert {site.module for site in part.values.values()} - {""} - named <= OWN_NAMES.get(name, set())


_SANDWICH = {"post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}
OWN_NAMES: dict[str, set[str]] = {
    "gemma2": _SANDWICH,
    "gemma3": _SANDWICH,
    "olmo2": _SANDWICH - {"pre_feedforward_layernorm"},
    "opt": {"fc1"},
    "mamba2": {"norm"},
    "deepseek_v3": {"kv_a_layernorm", "q_b_proj"},
}
"""Sites of these families name modules that have no standard name."""


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
    del FAMILIES["mistral"]
    register(replace(FAMILIES["llama"], name="mistral", architectures=("MistralForCausalLM",)))
    with pytest.raises(UnsupportedModelError, match="`sliding_window` to 4096"):
        StandardizedTransformer(_mistral(), dispatch=False)


def test_a_name_or_an_architecture_is_covered_once(own_registry: None) -> None:
    with pytest.raises(CutawayError, match=r"'llama' stands for LlamaForCausalLM already\. Say replace=True"):
        register(replace(FAMILIES["llama"], name="another"))
    with pytest.raises(CutawayError, match="'llama' stands for llama already"):
        register(replace(FAMILIES["llama"], architectures=("OtherForCausalLM",)))


def _llama() -> LlamaForCausalLM:
    sizes = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=2, **sizes)).eval()


GATE = Value("mlp_gate", "mlp", LAYOUTS["Neurons"], "the gate's projection, before the activation")


def gated() -> Family:
    return replace(FAMILIES["llama"], values={**FAMILIES["llama"].values, "mlp_gate": output_of("gate_proj")})


def test_a_family_from_outside_adds_a_value(own_registry: None) -> None:
    register(gated(), replace=True, values=[GATE])
    hf = _llama()
    model = StandardizedTransformer(hf)
    seen: list[Tensor] = []
    hook = hf.model.layers[1].mlp.gate_proj.register_forward_hook(lambda _m, _a, output: seen.append(output))
    found = model.read([1, 2, 3], "mlp_gate")["layers.1.mlp.mlp_gate"]
    assert torch.equal(found, seen[0])
    hook.remove()
    with model.trace([1, 2, 3]):
        model.layers[1].mlp.mlp_gate = model.layers[1].mlp.mlp_gate + 1
        edited = model.logits.save()
    hf.model.layers[1].mlp.gate_proj.register_forward_hook(lambda _m, _a, output: output + 1)
    with torch.no_grad():
        assert torch.equal(edited, hf(torch.tensor([[1, 2, 3]])).logits)
    assert model.support()["mlp_gate"].available
    assert "mlp_gate" in str(model)
    other = StandardizedTransformer("phi-mini")
    assert "mlp_gate" not in str(other)
    with pytest.raises(UnavailableValueError, match="mlp_gate"):
        other.read([1, 2, 3], "mlp_gate")


def test_a_value_is_added_once(own_registry: None) -> None:
    with pytest.raises(CutawayError, match="has a value `logits` already"):
        register(gated(), replace=True, values=[replace(GATE, name="logits")])


def test_a_family_for_one_model(own_registry: None) -> None:
    VALUES["mlp_gate"] = replace(GATE, rare=True)
    one = StandardizedTransformer(_llama(), family=gated())
    assert one.support()["mlp_gate"].available
    assert not StandardizedTransformer(_llama()).support()["mlp_gate"].available


def test_a_model_with_a_file_can_be_derived() -> None:
    model = StandardizedTransformer(_llama(), family="derived")
    assert model._subject.family.derived
    assert model._subject.family.stream == FAMILIES["llama"].stream


def test_a_file_that_refuses_says_how_to_open_the_model_all_the_same() -> None:
    hf = _llama()
    hf.config.final_softcap = 30.0
    with pytest.raises(UnsupportedModelError, match='With family="derived" the model opens'):
        StandardizedTransformer(hf)
    assert StandardizedTransformer(hf, family="derived").num_layers == 2


def test_a_subclass_is_served_by_its_parents_file() -> None:
    class Own(LlamaForCausalLM):
        pass

    model = StandardizedTransformer(Own(_llama().config).eval())
    assert model._subject.family.name == "llama"
    assert not model._subject.family.derived


def test_a_model_of_images_beside_a_covered_class_is_not_taken_for_it() -> None:
    text = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CONFIG_MAPPING["gemma3"](
        text_config={**text, "num_key_value_heads": 2, "vocab_size": 64, "pad_token_id": 0},
        vision_config={**vision, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        image_token_index=60,
        boi_token_index=61,
        eoi_token_index=62,
    )
    model = StandardizedTransformer(AutoModelForImageTextToText.from_config(config).eval())
    assert model._subject.family.derived
    assert "layer_output" in {path.split(".")[-1] for path in model.read([[1, 5, 9]])}
