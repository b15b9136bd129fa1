"""The tiny models: which there are, what becomes of a config, and that weights are such that a fault shows."""

from __future__ import annotations

import pytest
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from catalogue import tiny
from catalogue.specimen import IDS


def test_there_is_a_case_for_every_class_of_the_mapping() -> None:
    cases = tiny.cases()
    assert {case.architecture for case in cases} == set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    assert len({case.name for case in tiny.cases(images=True)}) == len(tiny.cases(images=True))
    assert all(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[case.model_type] == case.architecture for case in cases)
    assert {"llama", "gpt2"} <= {case.name for case in cases}


def test_every_kind_of_layer_stays() -> None:
    assert tiny.config("gemma3_text").layer_types == ["sliding_attention", "full_attention"] * 2
    assert tiny.config("qwen3_next").layer_types == ["linear_attention", "full_attention"] * 2
    assert tiny.config("lfm2").layer_types == ["conv", "full_attention"] * 2


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "mamba"])
def test_a_model_is_small_the_same_each_time_and_of_large_weights(name: str) -> None:
    hf, again = (tiny.build(tiny.case(name)) for _ in range(2))
    assert not hf.training
    assert sum(parameter.numel() for parameter in hf.parameters()) < 1_000_000
    with torch.no_grad():
        assert torch.equal(hf(input_ids=IDS).logits, again(input_ids=IDS).logits)
    for path, parameter in hf.named_parameters():
        assert parameter.std() > 0.01, path


def test_a_config_that_is_not_made_small_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "MOST_PARAMETERS", 1000)
    with pytest.raises(MemoryError, match="not made small"):
        tiny.build(tiny.case("gpt2"))
