"""Where gradients are not to be had, the error says so; and nothing of a gradient is left behind."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from cutaway import StandardizedTransformer
from cutaway.errors import GradientError
from tests import tiny


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_under_a_mode_that_records_nothing_asking_for_gradients_raises(mode: Any) -> None:
    hf, model = tiny.plain(), tiny.shared()
    with mode(), pytest.raises(GradientError, match=mode.__name__), model.trace(tiny.IDS, grad=True):
        model.logits
    with mode(), model.trace(tiny.IDS):
        logits = model.logits
    assert torch.equal(logits, tiny.logits_of(hf))


def backward(model: StandardizedTransformer) -> None:
    model.logits.sum().backward()


def autograd_grad(model: StandardizedTransformer) -> None:
    stream = model.layers[0].layer_output
    torch.autograd.grad(model.logits.sum(), stream)


def retain_grad(model: StandardizedTransformer) -> None:
    model.layers[0].layer_output.retain_grad()


@pytest.mark.parametrize("way", [backward, autograd_grad, retain_grad])
def test_gradients_asked_of_a_trace_without_them_say_how_to_have_them(way: Any) -> None:
    model = tiny.shared()
    with pytest.raises(GradientError, match=r"grad=True"), model.trace(tiny.IDS):
        way(model)


def test_other_errors_are_left_as_they_are() -> None:
    model = tiny.shared()
    with pytest.raises(RuntimeError, match="my own") as caught, model.trace(tiny.IDS):
        raise RuntimeError("my own")
    assert not isinstance(caught.value, GradientError)


def test_no_backward_hook_stays_and_a_second_backward_is_plain() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)

    def plain_backward() -> list[torch.Tensor]:
        hf.zero_grad()
        hf(tiny.IDS).logits.sum().backward()
        return [parameter.grad.clone() for parameter in hf.parameters()]

    expected = plain_backward()
    with model.trace(tiny.IDS, grad=True):
        model.layers[1].self_attn.attention_probabilities
        stream = model.layers[1].layer_output
        model.logits.sum().backward()
    assert stream.grad is not None
    for module in hf.modules():
        for table in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            assert not getattr(module, table)
    assert not any(parameter._backward_hooks for parameter in hf.parameters())
    for one, other in zip(plain_backward(), expected, strict=True):
        assert torch.equal(one, other)


def test_two_backwards_in_one_block_add_up() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS, grad=True):
        stream = model.layers[1].layer_output
        logits = model.logits
        logits[:, -1, 3].sum().backward(retain_graph=True)
        once = stream.grad.clone()
        logits[:, -1, 3].sum().backward()
    torch.testing.assert_close(stream.grad, 2 * once)


def test_an_exception_in_a_block_with_gradients_leaves_nothing() -> None:
    hf, model = tiny.plain(), tiny.shared()
    flags = [parameter.requires_grad for parameter in hf.parameters()]
    with pytest.raises(ZeroDivisionError), model.trace(tiny.IDS, grad=True):
        model.layers[1].layer_output
        raise ZeroDivisionError
    assert [parameter.requires_grad for parameter in hf.parameters()] == flags
    assert torch.is_grad_enabled()
    with model.trace(tiny.IDS):
        assert not model.logits.requires_grad


def test_the_graph_is_freed_with_the_last_value() -> None:
    model = tiny.shared()
    gc.collect()
    gc.disable()
    try:
        with model.trace(tiny.IDS, grad=True):
            stream = model.layers[1].layer_output
            inner = weakref.ref(stream)
            loss = model.logits.sum()
            loss.backward()
        del stream, loss
        assert inner() is None
    finally:
        gc.enable()
