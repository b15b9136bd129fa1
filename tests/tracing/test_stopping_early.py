"""What nothing asks for is not run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from transformers import PhiForCausalLM

from cutaway import StandardizedTransformer
from tests import raw, tiny


class TooFar(Exception):
    """A module ran that nothing asked for."""


def refuse(*_: object) -> None:
    raise TooFar


@pytest.fixture
def hf() -> Iterator[PhiForCausalLM]:
    """A model whose last layer must not run."""
    hf = tiny.fresh()
    hf.model.layers[2].register_forward_pre_hook(refuse)
    return hf


@pytest.fixture
def model(hf: PhiForCausalLM) -> StandardizedTransformer:
    return StandardizedTransformer(hf, check=False)


def test_a_trace_stops_at_the_last_value_asked(model: StandardizedTransformer) -> None:
    expected = raw.value(tiny.plain(), tiny.as_inputs(tiny.IDS), "layer_output", 1)
    with model.trace(tiny.IDS):
        value = model.layers[1].layer_output
    assert torch.equal(value, expected)
    with pytest.raises(TooFar), model.trace(tiny.IDS):
        model.logits


def test_read_stops_at_the_last_value_asked(model: StandardizedTransformer) -> None:
    paths = ["layers.1.mlp.mlp_output", "layers.0.layer_output", "layers.1.self_attn.attention_scores", "input_size"]
    assert list(model.read(tiny.IDS, *paths)) == [paths[3], paths[1], paths[2], paths[0]]
    with pytest.raises(TooFar):
        model.read(tiny.IDS, "next_token_probs")


def test_the_block_is_left_in_the_middle_of_a_layer() -> None:
    hf = tiny.fresh()
    for module in (hf.model.layers[1].self_attn.dense, hf.model.layers[1].mlp):
        module.register_forward_pre_hook(refuse)
    model = StandardizedTransformer(hf, check=False)
    with model.trace(tiny.IDS):
        model.layers[1].self_attn.attention_head_outputs
    with pytest.raises(TooFar), model.trace(tiny.IDS):
        model.layers[1].self_attn.attention_output


def test_a_trace_that_asks_for_nothing_runs_nothing() -> None:
    hf = tiny.fresh()
    hf.register_forward_pre_hook(refuse)
    model = StandardizedTransformer(hf, check=False)
    with model.trace(tiny.IDS):
        assert model.input_size == (3, 6)
    assert model.read(tiny.IDS, "input_size") == {"input_size": (3, 6)}


def test_values_read_before_the_stop_are_those_of_a_whole_pass(model: StandardizedTransformer) -> None:
    for prompt in ([[3]], [[4, 5]], [[6, 7, 8]], [[9] * 20]):
        expected = raw.value(tiny.plain(), tiny.as_inputs(torch.tensor(prompt)), "layer_output", 0)
        with model.trace(prompt):
            first = model.layers[0].layer_output
            model.layers[1].layer_output
        assert torch.equal(first, expected)


def test_after_an_early_stop_the_plain_model_runs_and_generates_as_before() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected = hf.generate(tiny.IDS, max_new_tokens=4, do_sample=False)
    with model.trace(tiny.IDS):
        model.layers[0].self_attn.attention_probabilities
    assert torch.equal(hf.generate(tiny.IDS, max_new_tokens=4, do_sample=False), expected)
