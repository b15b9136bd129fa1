"""Every value's gradient, against finite differences in float64 of the plain model edited by raw hooks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests import raw, tiny

NAMES = [name for name in raw.WRITABLE if name not in ("input_ids", "attention_mask")]
LAYER = 1


def loss_of(logits: Tensor) -> Tensor:
    """A number that depends on every row, and not evenly."""
    weights = torch.linspace(-1, 1, logits[:, -1].numel(), dtype=logits.dtype).view(logits[:, -1].shape)
    return (logits[:, -1] * weights).sum() + logits[:, 3, 7].square().sum() / 10


def slope(hf: Any, inputs: dict[str, Tensor], name: str, direction: Tensor, step: float) -> Tensor:
    """The plain model's loss along a direction of one value, by a central difference."""
    up = raw.edited_logits(hf, inputs, name, LAYER, lambda value: value + step * direction)
    down = raw.edited_logits(hf, inputs, name, LAYER, lambda value: value - step * direction)
    return (loss_of(up) - loss_of(down)) / (2 * step)


def gradient(model: Any, name: str, inputs: Any) -> Tensor:
    with model.trace(inputs, grad=True):
        host: Any = model
        for part in raw.path_of(name, LAYER).split(".")[:-1]:
            host = host[int(part)] if part.isdigit() else getattr(host, part)
        value = getattr(host, name)
        loss_of(model.logits).backward()
    return value.grad


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["P", "P-gqa"])
@pytest.mark.parametrize("name", NAMES)
def test_a_values_gradient_is_the_slope_of_the_plain_model(name: str, kind: str, attention: str) -> None:
    hf, model = tiny.plain(kind, attention, torch.float64), tiny.shared(kind, attention, torch.float64)
    found = gradient(model, name, tiny.IDS)
    # transformers' eager attention takes its softmax in float32, also in a float64 model.
    rough = attention == "eager" or name in raw.INTERIOR[3:5]
    for seed in range(3):
        direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        if name == "attention_scores":
            direction = direction.tril()  # where the mask holds scores at the lowest number, a step is lost
        expected = slope(hf, tiny.as_inputs(tiny.IDS), name, direction, 1e-3 if rough else 1e-6)
        tolerance = 2e-3 if rough else 1e-5
        torch.testing.assert_close((found * direction).sum(), expected, rtol=tolerance, atol=tolerance)
        assert expected.abs() > 10 * tolerance or name == "attention_scores"  # its pattern may be all on one key


@pytest.mark.parametrize("name", ["layer_output", "attention_premix", "attention_values", "mlp_neurons"])
def test_in_a_padded_batch_too(name: str) -> None:
    hf, model = tiny.plain("P", "sdpa", torch.float64), tiny.shared("P", "sdpa", torch.float64)
    found = gradient(model, name, tiny.LEFT_PADDED)
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = slope(hf, tiny.LEFT_PADDED, name, direction, 1e-6)
    torch.testing.assert_close((found * direction).sum(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_reading_the_pattern_of_a_padded_batch_leaves_gradients_finite(dtype: torch.dtype) -> None:
    model = tiny.shared("P", "sdpa", dtype)
    expected = gradient(model, "layer_input", tiny.LEFT_PADDED)
    with model.trace(tiny.LEFT_PADDED, grad=True):
        stream = model.layers[LAYER].layer_input
        scores = model.layers[LAYER].self_attn.attention_scores
        pattern = model.layers[LAYER].self_attn.attention_probabilities
        loss_of(model.logits).backward()
    assert pattern.isfinite().all()
    assert scores.grad.isfinite().all()
    real = tiny.LEFT_PADDED["attention_mask"].bool()
    torch.testing.assert_close(stream.grad[real], expected[real], rtol=1e-4, atol=1e-4)


def test_all_values_of_one_pass_have_their_gradients_at_once() -> None:
    model = tiny.shared("P", "eager", torch.float64)
    kept: dict[str, Tensor] = {}
    with model.trace(tiny.IDS, grad=True):
        kept["token_embeddings"] = model.token_embeddings
        attention, mlp = model.layers[LAYER].self_attn, model.layers[LAYER].mlp
        for name in NAMES[1:]:
            path = raw.path_of(name, LAYER)
            host = attention if ".self_attn." in path else mlp if ".mlp." in path else model.layers[LAYER]
            kept[name] = getattr(host if path.startswith("layers") else model, name)
        loss_of(kept["logits"]).backward()
    for name, value in kept.items():
        if name not in ("attention_norm_output", "mlp_norm_output", "mlp_input"):
            torch.testing.assert_close(value.grad, gradient(model, name, tiny.IDS), rtol=1e-6, atol=1e-6, msg=name)
