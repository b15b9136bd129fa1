"""The transformers model of an edited model: plain calls, `generate` and pipelines carry the edits."""

from __future__ import annotations

import copy
import inspect
import threading
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, IdleEditWarning
from tests import raw, tiny
from tests.families import models


def add_one(value: Tensor) -> Tensor:
    return value + 1


EDIT = {"layers.1.mlp.mlp_output": add_one}


def expected(inputs: Any = tiny.IDS) -> Tensor:
    return raw.edited_logits(tiny.plain(), tiny.as_inputs(inputs), "mlp_output", 1, add_one)


def hooks_of(hf: Any) -> int:
    """Hooks but those that transformers leaves where it was asked for hidden states."""
    ours = [h for m in hf.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]
    ours = [hook for hook in ours if not hook.__module__.startswith("transformers")]
    return len(ours) + sum("forward" in vars(m) for m in hf.modules())


def test_a_plain_call_carries_the_edits_and_the_original_none() -> None:
    model = tiny.shared()
    edited = model.edited(EDIT)
    before = tiny.logits_of(model.hf)
    for inputs in (tiny.IDS, tiny.LEFT_PADDED):
        assert torch.equal(tiny.logits_of(edited.hf, inputs), expected(inputs))
        with torch.no_grad():
            assert torch.equal(edited(**tiny.as_inputs(inputs)).logits, expected(inputs))
    assert torch.equal(tiny.logits_of(model.hf), before)
    assert torch.equal(tiny.logits_of(edited.hf), expected())
    assert hooks_of(model.hf) == hooks_of(edited.hf) == 0


def test_it_is_a_model_of_the_same_class_with_the_same_weights() -> None:
    model = tiny.shared()
    hf = model.edited(EDIT).hf
    assert hf is not model.hf
    assert isinstance(hf, type(model.hf))
    assert (type(hf).__name__, type(hf).__module__) == (type(model.hf).__name__, type(model.hf).__module__)
    assert inspect.signature(hf.forward) == inspect.signature(model.hf.forward)
    assert inspect.signature(hf.generate) == inspect.signature(model.hf.generate)
    assert hf.config is model.hf.config
    assert hf.generation_config is model.hf.generation_config
    assert [(n, id(p)) for n, p in hf.named_parameters()] == [(n, id(p)) for n, p in model.hf.named_parameters()]
    model_twice = model.edited(EDIT)
    assert model_twice.hf is model_twice.hf


def test_hooks_of_its_own_are_its_own() -> None:
    model = tiny.shared()
    hf, calls = model.edited(EDIT).hf, []
    handle = hf.register_forward_hook(lambda *_: calls.append(1))
    tiny.logits_of(model.hf)
    assert not calls
    tiny.logits_of(hf)
    assert len(calls) == 1
    handle.remove()


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "neox"])
def test_its_generate_carries_the_edits_at_the_same_positions(kind: str, use_cache: bool) -> None:
    model = models.wrapped(kind)
    arguments: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "use_cache": use_cache}
    prompt = models.left_padded()
    edited = model.edited({"layers.1.layer_output": lambda value: value * -2}, positions="new")
    with edited.generate(prompt, **arguments) as run:
        pass
    found = edited.hf.generate(**prompt, **arguments)
    assert torch.equal(found, run.output)
    plain = model.hf.generate(**prompt, **arguments)
    assert not torch.equal(found, plain)
    assert torch.equal(found[:, :9], plain[:, :9])  # the first new token comes of the prompt alone


def test_a_pipeline_carries_the_edits() -> None:
    model = StandardizedTransformer("phi-mini", check=False)
    edited = model.edited({"layers.2.layer_output": lambda value: value * -1})
    prompt, arguments = "def add(a, b):", {"max_new_tokens": 6, "do_sample": False}
    pipe = transformers.pipeline("text-generation", model=edited.hf, tokenizer=model.tokenizer)
    text = pipe(prompt, **arguments)[0]["generated_text"]
    assert text == edited.generate(prompt, **arguments).text
    assert text != model.generate(prompt, **arguments).text


def test_edits_of_edits_and_wrapping_it_again() -> None:
    model = tiny.shared()
    twice = model.edited(EDIT).edited(EDIT)
    both = raw.edited_logits(tiny.plain(), tiny.as_inputs(tiny.IDS), "mlp_output", 1, lambda value: value + 1 + 1)
    assert torch.equal(tiny.logits_of(twice.hf), both)
    again = StandardizedTransformer(model.edited(EDIT).hf, check=False)
    with again.trace(tiny.IDS):
        again.layers[0].layer_output
        assert torch.equal(again.logits, expected())


def test_it_is_not_copied() -> None:
    with pytest.raises(CutawayError, match="edit the copy"):
        copy.deepcopy(tiny.shared().edited(EDIT).hf)


def test_threads_and_errors() -> None:
    model = tiny.shared()
    hf, before, found = model.edited(EDIT).hf, tiny.logits_of(tiny.plain()), []
    threads = [
        threading.Thread(target=lambda which=which: found.append((which, tiny.logits_of((hf, model.hf)[which]))))
        for which in (0, 1, 0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(logits, before if which else expected()) for which, logits in found)
    with pytest.raises(AttributeError):
        hf(input_ids=tiny.IDS, attention_mask=3)
    assert hooks_of(model.hf) == 0
    assert torch.equal(tiny.logits_of(model.hf), before)


def test_gradients_flow_through_the_edits() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    weight = hf.model.layers[0].mlp.fc1.weight
    carrier = model.edited({"layers.1.mlp.mlp_output": lambda value: value * 3}).hf
    carrier(input_ids=tiny.IDS).logits.square().sum().backward()
    found, hf.model.layers[0].mlp.fc1.weight.grad = weight.grad, None
    handle = hf.model.layers[1].mlp.register_forward_hook(lambda *call: call[-1] * 3)
    hf(input_ids=tiny.IDS).logits.square().sum().backward()
    handle.remove()
    assert torch.equal(found, weight.grad)


def test_train_and_eval_are_those_of_the_model() -> None:
    hf = tiny.fresh()
    carrier = StandardizedTransformer(hf, check=False).edited(EDIT).hf
    carrier.train()
    assert hf.training
    assert hf.model.layers[0].training
    carrier.eval()
    assert not hf.training


def test_positions_that_never_come_are_told() -> None:
    carrier = tiny.shared().edited(EDIT, positions="new").hf
    with pytest.warns(IdleEditWarning, match="new"):
        carrier(input_ids=tiny.IDS)
