"""What a newcomer does first, and the message or the meaning it has."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, InputError, LoadError, NoTraceError, UnknownValueError
from tests import tiny

IDS = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])


@pytest.fixture(scope="module")
def model() -> StandardizedTransformer:
    return tiny.shared()


def test_a_method_that_returns_the_module_returns_the_host(model: StandardizedTransformer) -> None:
    assert model.to("cpu").eval() is model
    assert model.layers[0].eval().module is model.hf.model.layers[0]
    assert model.layers[0].self_attn.q_proj.extra_repr() == model.hf.model.layers[0].self_attn.q_proj.extra_repr()


def test_ids_may_be_arrays(model: StandardizedTransformer) -> None:
    expected = tiny.logits_of(model.hf, {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)})
    assert torch.equal(model.read(IDS.numpy(), "logits")["logits"], expected)
    assert torch.equal(model.read(list(IDS.numpy()), "logits")["logits"], expected)
    with pytest.raises(InputError, match="ids are integers"):
        model.read(np.zeros((2, 3)), "logits")


MISTAKES: list[tuple[Callable[[Any], object], type[CutawayError], str]] = [
    (lambda m: m.layers[1].skip(), NoTraceError, r"say `layers\.1\.skip\(\)` inside `with model\.trace"),
    (lambda m: setattr(m.layers[0].mlp, "mlp_output", IDS), NoTraceError, r"model\.hooks\(\{'layers\.0\.mlp\.mlp_out"),
    (lambda m: m.support()["layer_mi"], UnknownValueError, "Did you mean 'layer_mid'"),
    (lambda m: m.hooks({"logits": 3}), InputError, "edited by a function"),
    (lambda m: m.steer("2", torch.zeros(m.hidden_size)), InputError, "layers and factor are numbers"),
    (lambda m: list(m.generate(IDS)), NoTraceError, "never opened"),
    (lambda m: StandardizedTransformer(""), LoadError, "name is empty"),
    (lambda m: StandardizedTransformer("gpt2"), LoadError, "Did you mean 'openai-community/gpt2'"),
    (lambda m: StandardizedTransformer("phi2"), LoadError, "Did you mean 'microsoft/phi-2'"),
]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES)
def test_a_mistakes_message_says_what_to_do(
    model: StandardizedTransformer, mistake: Callable[[Any], object], error: type[CutawayError], message: str
) -> None:
    with pytest.raises(error, match=message):
        mistake(model)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, on which the model can be put")
def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(LoadError, match="cannot be put on cuda"):
        StandardizedTransformer("phi-mini", device="cuda")


def test_a_mask_that_a_call_leaves_out_is_not_taken_for_its_ids(model: StandardizedTransformer) -> None:
    seen: list[torch.Tensor] = []
    with model.editing({"attention_mask": seen.append, "input_ids": seen.append}), torch.no_grad():
        model.hf(IDS)
    assert len(seen) == 1
    assert torch.equal(seen[0], IDS)
