"""The arithmetic: linear, norm, softmax, activation; against torch in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.activations import ACT2FN

from cutaway.reference import LayerNorm, Linear, gelu_new, softmax


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_gelu_new(random):
    x = random.standard_normal((3, 7, 50_001)) * 5  # several chunks, the last one ragged
    expected = ACT2FN["gelu_new"](torch.tensor(x)).numpy()
    before = x.copy()
    found = gelu_new(x)
    assert np.array_equal(x, before)
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-14)
    transposed = np.empty((7, 3, 50_001)).swapaxes(0, 1)
    assert np.array_equal(gelu_new(x, out=transposed), found)
    assert gelu_new(x, out=x) is x
    assert np.array_equal(x, found)


def test_gelu_new_far_out():
    assert np.array_equal(gelu_new(np.array([-1e30, -50.0, 0.0, 50.0, 1e5])), [-0.0, -0.0, 0.0, 50.0, 1e5])


def test_layer_norm(random):
    x = random.standard_normal((3, 5, 33)) * 4 + 7
    weight, bias = random.standard_normal((2, 33))
    expected = torch.nn.functional.layer_norm(*map(torch.tensor, (x,)), (33,), *map(torch.tensor, (weight, bias)), 1e-3)
    assert np.allclose(LayerNorm(weight, bias, 1e-3)(x), expected.numpy(), atol=1e-13)


def test_layer_norm_of_a_float32_stream_with_one_very_large_entry(random):
    x = random.standard_normal((1, 2560)).astype(np.float32)
    x[0, 743] = -790
    ones, zeros = np.ones(2560, np.float32), np.zeros(2560, np.float32)
    expected = torch.nn.functional.layer_norm(torch.tensor(x).double(), (2560,)).numpy()
    assert np.allclose(LayerNorm(ones, zeros, 1e-5)(x), expected, rtol=1e-5, atol=1e-6)


def test_linear(random):
    x, weight, bias = random.standard_normal((2, 3, 5)), random.standard_normal((4, 5)), random.standard_normal(4)
    assert np.allclose(Linear(weight, bias)(x), np.einsum("bsi,oi->bso", x, weight) + bias)
    assert np.allclose(Linear(weight, None)(x), np.einsum("bsi,oi->bso", x, weight))


def test_softmax(random):
    scores = random.standard_normal((2, 3, 40)) * 1000
    expected = torch.tensor(scores).softmax(-1).numpy()
    found = softmax(scores)
    assert np.allclose(found, expected, atol=1e-15)
    assert softmax(scores, out=scores) is scores
    assert np.array_equal(scores, found)


@pytest.mark.parametrize("fill", [-np.inf, np.finfo(np.float32).min, -1e9])
def test_softmax_of_a_row_without_anything_is_uniform(fill):
    scores = np.array([[fill] * 4, [0, fill, 0, fill]], np.float32)
    assert np.array_equal(softmax(scores), [[0.25] * 4, [0.5, 0, 0.5, 0]])
    assert np.array_equal(softmax(scores, out=scores), [[0.25] * 4, [0.5, 0, 0.5, 0]])
