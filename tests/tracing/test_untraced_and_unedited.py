"""Tracing changes nothing by itself: logits, weights, config and kernels are those of the plain model."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

from cutaway import StandardizedTransformer
from tests import raw, tiny

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
RIGHT_PADDED = {
    "input_ids": torch.tensor([[5, 9, 33, 0, 0], [7, 7, 1, 40, 8], [50, 4, 0, 0, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]),
}
OUTSIDE_THE_SOFTMAX = [name for name in raw.WRITABLE if name not in raw.INTERIOR[3:5]]


@pytest.mark.parametrize("inputs", [tiny.IDS, tiny.LEFT_PADDED, RIGHT_PADDED], ids=["full", "left", "right"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", tiny.KINDS)
def test_logits_of_an_unedited_trace_are_the_plain_models_bit_for_bit(
    kind: str, dtype: torch.dtype, attention: str, inputs: torch.Tensor | dict[str, torch.Tensor]
) -> None:
    expected = tiny.logits_of(tiny.plain(kind, attention, dtype), inputs)
    model = tiny.shared(kind, attention, dtype)
    with model.trace(inputs):
        assert torch.equal(model.logits, expected)
    with model.trace(inputs):
        for layer in model.layers:
            layer.layer_input
            layer.self_attn.attention_queries
            layer.self_attn.attention_head_outputs
            layer.mlp.mlp_neurons
            layer.layer_output
        assert torch.equal(model.logits, expected)
    assert torch.equal(model.read(inputs, *OUTSIDE_THE_SOFTMAX)["logits"], expected)


def test_under_eager_reading_everything_leaves_the_logits_bit_for_bit() -> None:
    for dtype in DTYPES:
        expected = tiny.logits_of(tiny.plain("P-gqa", "eager", dtype), tiny.LEFT_PADDED)
        assert torch.equal(tiny.shared("P-gqa", "eager", dtype).read(tiny.LEFT_PADDED)["logits"], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["P", "P-gqa"])
def test_under_sdpa_reading_every_pattern_leaves_the_logits_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    model = tiny.shared(name, "sdpa", dtype)
    for inputs in (tiny.IDS, tiny.LEFT_PADDED, RIGHT_PADDED):
        expected = tiny.logits_of(tiny.plain(name, "sdpa", dtype), inputs)
        assert torch.equal(model.read(inputs)["logits"], expected)
        with model.trace(inputs):
            scores = model.layers[1].self_attn.attention_scores
            pattern = model.layers[1].self_attn.attention_probabilities
            assert torch.equal(model.logits, expected)
        assert pattern.shape == scores.shape
        with torch.inference_mode(), model.trace(inputs):
            model.layers[1].self_attn.attention_probabilities
            assert torch.equal(model.logits, expected)
        with model.trace(inputs, grad=True):
            pattern = model.layers[1].self_attn.attention_probabilities
            assert torch.equal(model.logits, expected)
            model.logits.float().square().sum().backward()
        assert pattern.grad.abs().max() > 0


def test_wrapping_and_tracing_leave_every_parameter_as_it_was() -> None:
    hf = tiny.fresh()
    before = {name: parameter.clone() for name, parameter in hf.named_parameters()}
    model = StandardizedTransformer(hf)
    model.read(tiny.IDS)
    assert model.hf is hf
    for name, parameter in hf.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.requires_grad
        assert parameter.grad is None


class CountKernel(TorchFunctionMode):
    """Counts calls of the real fused kernel, and of the softmax that eager attention takes."""

    calls = 0
    softmaxes = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += func is torch.nn.functional.scaled_dot_product_attention
        self.softmaxes += func is torch.nn.functional.softmax
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("watched", [[], [1], [0, 2], [0, 1, 2]])
def test_only_the_layers_whose_pattern_is_asked_run_eager_attention_beside_the_kernel(watched: list[int]) -> None:
    model = tiny.shared()
    model.read(tiny.IDS, "logits")
    with CountKernel() as mode:
        model.read(tiny.IDS, *(f"layers.{i}.self_attn.attention_scores" for i in watched), "logits")
    assert (mode.calls, mode.softmaxes) == (tiny.LAYERS, len(watched))
    with CountKernel() as mode, model.trace(tiny.IDS):
        for i in watched:
            model.layers[i].self_attn.attention_probabilities
        model.logits
    assert (mode.calls, mode.softmaxes) == (tiny.LAYERS, len(watched))


@pytest.mark.parametrize("value", ["attention_scores", "attention_probabilities"])
@pytest.mark.parametrize("inference", [False, True])
def test_only_the_layers_whose_pattern_is_edited_leave_the_kernel(value: str, inference: bool) -> None:
    model = tiny.shared()
    model.read(tiny.IDS, "logits")
    with torch.inference_mode(inference), CountKernel() as mode, model.trace(tiny.IDS):
        getattr(model.layers[0].self_attn, value)
        getattr(model.layers[1].self_attn, value)[:, 1] += 1
        setattr(model.layers[2].self_attn, value, getattr(model.layers[2].self_attn, value) + 1)
        model.logits
    assert mode.calls == 1


def test_other_values_inside_the_attention_leave_the_kernel_in_place() -> None:
    with CountKernel() as mode:
        tiny.shared().read(tiny.IDS, "attention_queries", "attention_values", "attention_head_outputs", "logits")
    assert mode.calls == tiny.LAYERS


def test_a_plain_call_inside_the_body_is_a_plain_call() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected, other = tiny.logits_of(hf), tiny.logits_of(hf, tiny.LEFT_PADDED)
    with model.trace(tiny.IDS):
        model.layers[0].self_attn.attention_scores += 1
        with CountKernel() as mode:
            assert torch.equal(tiny.logits_of(hf, tiny.LEFT_PADDED), other)
        assert mode.calls == tiny.LAYERS
        model.layers[1].mlp.mlp_output += 1
        assert torch.equal(tiny.logits_of(hf, tiny.LEFT_PADDED), other)
        assert not torch.equal(model.logits, expected)
    assert torch.equal(tiny.logits_of(hf), expected)
