"""Embeddings in the place of ids: what a pass is given, and what it lacks then."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PretrainedConfig

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, InputError, UnavailableValueError
from tests import tiny
from tests.families import models

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "phi": tiny.config,
    "llama": models.llama,
    "gpt2": models.gpt2,
    "neox": models.neox,
}
MASK = tiny.LEFT_PADDED["attention_mask"]


@lru_cache
def opened(family: str, attention: str = "sdpa") -> StandardizedTransformer:
    return StandardizedTransformer(models.build(CONFIGS[family](), attention), check=False)


def given(model: StandardizedTransformer) -> Tensor:
    """Embeddings that no ids have."""
    ids = tiny.LEFT_PADDED["input_ids"]
    return model.hf.get_input_embeddings()(ids).detach() + 0.5


def plain(hf: Any, **inputs: Any) -> Tensor:
    with torch.no_grad():
        return hf(**inputs).logits


def own_positions(model: StandardizedTransformer) -> dict[str, Tensor]:
    """A table of positions is told by the mask where padding stands; a rotary needs no telling."""
    if not model._subject.family.positions_from_mask:
        return {}
    return {"position_ids": (MASK.cumsum(dim=1) - 1).clamp(min=0)}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", CONFIGS)
def test_logits_of_embeddings_are_the_plain_ones(family: str, attention: str) -> None:
    model = opened(family, attention)
    e = given(model)
    expected = plain(model.hf, inputs_embeds=e)
    assert not torch.equal(expected, plain(model.hf, input_ids=tiny.LEFT_PADDED["input_ids"]))
    assert torch.equal(model.read("logits", inputs_embeds=e)["logits"], expected)
    assert torch.equal(model.read({"inputs_embeds": e}, "logits")["logits"], expected)
    assert torch.equal(model.read({"input_ids": None, "inputs_embeds": e}, "logits")["logits"], expected)
    assert torch.equal(model.read("logits", inputs_embeds=e[1])["logits"], plain(model.hf, inputs_embeds=e[1:2]))
    with model.trace(inputs_embeds=e):
        assert torch.equal(model.logits, expected)
    padded = plain(model.hf, inputs_embeds=e, attention_mask=MASK, **own_positions(model))
    assert torch.equal(model.read("logits", inputs_embeds=e, attention_mask=MASK)["logits"], padded)
    found = model.read({"inputs_embeds": e, "attention_mask": MASK}, "logits", "next_token_probs")
    assert torch.equal(found["logits"], padded)
    assert torch.equal(found["next_token_probs"], padded[:, -1].float().softmax(dim=-1))


@pytest.mark.parametrize("family", CONFIGS)
def test_what_is_of_ids_is_not_there(family: str) -> None:
    model = opened(family)
    e = given(model)
    says = pytest.raises(UnavailableValueError, match="it was given `inputs_embeds` in the place of ids")
    own = type(model.embed_tokens.module).__name__
    assert own == "Embedding"
    for name in ("input_ids", "token_embeddings", "embed_tokens.output"):
        with says:
            model.read(name, inputs_embeds=e)
    with model.trace(inputs_embeds=e):
        with says:
            model.input_ids
        with says:
            model.token_embeddings[:] = 0
        with says:
            model.embed_tokens.output
        assert torch.equal(model.logits, plain(model.hf, inputs_embeds=e))
    everything = model.read(inputs_embeds=e)
    whole = model.read(tiny.LEFT_PADDED["input_ids"])
    assert set(whole) - set(everything) == {"input_ids", "token_embeddings"}
    assert set(model.read("*", inputs_embeds=e)) == set(everything)
    assert list(model.read("input_size", inputs_embeds=e)["input_size"]) == [3, 6]
    with pytest.raises(CutawayError, match="token_embeddings was never called"):
        with model.hooks({"token_embeddings": lambda value: value + 1}):
            model.read("logits", inputs_embeds=e)


@pytest.mark.parametrize("family", CONFIGS)
def test_edits_and_positions_in_a_pass_of_embeddings(family: str) -> None:
    model = opened(family)
    e = given(model)
    block = model.layers[1].module

    def plus_one(_module: Any, _args: Any, output: Any) -> Any:
        stream = (output[0] if isinstance(output, tuple) else output).clone()
        for row, place in enumerate([3, 0, 1]):  # each row's first real token
            stream[row, place] += 1
        return (stream, *output[1:]) if isinstance(output, tuple) else stream

    handle = block.register_forward_hook(plus_one)
    expected = plain(model.hf, inputs_embeds=e, attention_mask=MASK, **own_positions(model))
    handle.remove()
    tokens = {"inputs_embeds": e, "attention_mask": MASK}
    with model.hooks({"layers.1.layer_output": lambda value: value + 1}, positions=0):
        assert torch.equal(model.read("logits", **tokens)["logits"], expected)
    with model.trace(**tokens) as run:
        model.layers[1].layer_output[run.at(0)] += 1
        assert torch.equal(model.logits, expected)
    last = model.read("logits", positions=-1, **tokens)["logits"]
    assert torch.equal(last, plain(model.hf, **tokens, **own_positions(model))[:, -1])


@pytest.mark.parametrize("family", CONFIGS)
def test_generation_from_embeddings_is_transformers_own(family: str) -> None:
    model = opened(family)
    e = given(model)
    arguments = {"max_new_tokens": 3, "do_sample": False}
    for tokens in ({"inputs_embeds": e}, {"inputs_embeds": e, "attention_mask": MASK}):
        expected = model.hf.generate(**tokens, **arguments)
        assert torch.equal(model.generate(**tokens, **arguments).output, expected)
        steps: list[Any] = []
        with model.generate(tokens, **arguments) as run:
            with pytest.raises(UnavailableValueError, match="inputs_embeds"):
                model.input_ids
            for step in run:
                steps.append(step.input_ids)
                assert step.positions.shape == ((3, 6) if step.index == 0 else (3, 1))
                assert model.logits.shape[-1] == 64
        assert torch.equal(run.output, expected)
        assert steps[0] is None
        assert torch.equal(torch.cat(steps[1:], dim=1), expected[:, :-1])
    ids = tiny.LEFT_PADDED["input_ids"]
    both = {"input_ids": ids, "inputs_embeds": e}
    assert torch.equal(model.generate(both, **arguments).output, model.hf.generate(**both, **arguments))


@pytest.mark.parametrize("family", CONFIGS)
def test_a_scan_and_gradients_of_embeddings(family: str) -> None:
    model = opened(family)
    e = given(model)
    with model.scan(inputs_embeds=e):
        assert tuple(model.layers[0].layer_input.shape) == (3, 6, 32)
        assert tuple(model.logits.shape) == (3, 6, 64)
    leaf = e.clone().requires_grad_()
    model.hf(inputs_embeds=leaf).logits.square().sum().backward()
    mine = e.clone().requires_grad_()
    with model.trace(inputs_embeds=mine, grad=True):
        model.logits.square().sum().backward()
    assert mine.grad is not None
    assert leaf.grad is not None
    assert torch.equal(mine.grad, leaf.grad)
    model.hf.zero_grad(set_to_none=True)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"inputs_embeds": torch.zeros(2, 3, 31)}, "31 wide, and this model's embeddings 32"),
        ({"inputs_embeds": torch.zeros(32)}, r"in a tensor of shape \[batch, seq, hidden_size\]; it was torch.float32"),
        ({"inputs_embeds": torch.zeros(2, 3, 32, dtype=torch.long)}, "numbers, in a tensor"),
        ({"inputs_embeds": [[0.5]]}, "it was a list"),
        ({"inputs_embeds": torch.zeros(2, 0, 32)}, "the prompt is empty"),
        ({"inputs_embeds": torch.zeros(2, 3, 32, dtype=torch.float64)}, r"Convert them: `\.to\(torch\.float32\)`"),
        ({"inputs_embeds": torch.zeros(2, 3, 32), "attention_mask": torch.ones(2, 4)}, "they must agree"),
        ({"inputs_embeds": torch.zeros(2, 3, 32), "input_ids": tiny.IDS}, "ids or embeddings, and it was given both"),
        ({"inputs_embeds": torch.zeros(1, 49, 32)}, "49 tokens long, and the model's context is 48"),
        ({}, "was given no prompt"),
    ],
)
def test_embeddings_that_do_not_fit(inputs: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        opened("gpt2").trace(**inputs)


def test_a_text_is_not_found_in_embeddings() -> None:
    model = StandardizedTransformer("phi-mini", check=False)
    with pytest.raises(InputError, match="holds no `input_ids`"):
        model.positions({"inputs_embeds": torch.zeros(1, 3, 8)}, "def")
    with pytest.raises(InputError, match="ids or embeddings"):
        model.trace("def", inputs_embeds=torch.zeros(1, 3, 8))
