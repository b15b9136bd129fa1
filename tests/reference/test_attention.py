"""`PhiAttention` alone: against attention written out with loops, and its choices one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cutaway.errors import CutawayError, InputError, ShapeError
from cutaway.reference import PhiAttention


@pytest.fixture
def x():
    return np.random.default_rng(5).standard_normal((3, 7, 24))


def by_hand(attention, x, allowed=None, pairing="half", positions=None):
    """Attention with a loop for everything, from the weights alone."""
    batch, seq, _ = x.shape
    heads, kv_heads, width, turned = (
        attention.num_heads,
        attention.num_kv_heads,
        attention.head_dim,
        attention.rotary_dim,
    )

    def project(layer, v):
        return np.array([row @ v for row in layer.weight]) + (0 if layer.bias is None else layer.bias)

    def rotated(v, m):
        v = v.copy()
        for i in range(turned // 2):
            a, b = (i, i + turned // 2) if pairing == "half" else (2 * i, 2 * i + 1)
            angle = m * 10000.0 ** (-2 * i / turned)
            v[a], v[b] = (
                v[a] * math.cos(angle) - v[b] * math.sin(angle),
                v[b] * math.cos(angle) + v[a] * math.sin(angle),
            )
        return v

    positions = range(seq) if positions is None else positions
    output, weights = np.zeros_like(x), np.zeros((batch, heads, seq, seq))
    for b in range(batch):
        merged = np.zeros((seq, heads * width))
        for h in range(heads):
            kv = h // (heads // kv_heads)
            take, take_kv = slice(h * width, (h + 1) * width), slice(kv * width, (kv + 1) * width)
            q = [rotated(project(attention.q_proj, x[b, s])[take], positions[s]) for s in range(seq)]
            k = [rotated(project(attention.k_proj, x[b, s])[take_kv], positions[s]) for s in range(seq)]
            v = [project(attention.v_proj, x[b, s])[take_kv] for s in range(seq)]
            for i in range(seq):
                open_keys = [j for j in range(i + 1) if allowed is None or allowed[b, h, i, j]]
                if not open_keys:
                    weights[b, h, i] = 1 / seq
                else:
                    exps = [math.exp(q[i] @ k[j] / math.sqrt(width)) for j in open_keys]
                    weights[b, h, i, open_keys] = np.array(exps) / sum(exps)
                merged[i, take] = sum(weights[b, h, i, j] * v[j] for j in range(seq))
        output[b] = [project(attention.o_proj, merged[s]) for s in range(seq)]
    return output, weights


def sharpened(**choices):
    """Weights wide enough for scores to differ."""
    attention = PhiAttention(24, 4, 6, seed=1, **choices)
    for layer in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj):
        layer.weight *= 15
        if layer.bias is not None:
            layer.bias *= 15
    return attention


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [0, 2, 6])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_against_loops(x, pairing, rotary_dim, bias, num_kv_heads):
    attention = sharpened(pairing=pairing, rotary_dim=rotary_dim, bias=bias, num_kv_heads=num_kv_heads)
    output, weights = attention.forward(x)
    expected_output, expected_weights = by_hand(attention, x, pairing=pairing)
    assert output.shape == (3, 7, 24)
    assert weights.shape == (3, 4, 7, 7)
    assert np.allclose(weights, expected_weights, atol=1e-12)
    assert np.allclose(output, expected_output, atol=1e-12)
    assert np.allclose(weights.sum(-1), 1)
    assert np.array_equal(weights, np.tril(weights))


@pytest.mark.parametrize("fill", ["min", -1e9, -np.inf])
def test_masks(x, fill):
    attention = sharpened(mask_fill=fill)
    random = np.random.default_rng(2)
    for shape in [(7, 7), (3, 7, 7), (3, 1, 7), (3, 4, 7, 7), (1, 4, 1, 7)]:
        mask = random.random(shape) < 0.5
        four = mask[:, None] if mask.ndim == 3 else mask
        allowed = np.broadcast_to(four, (3, 4, 7, 7))
        output, weights = attention.forward(x, mask)
        expected_output, expected_weights = by_hand(attention, x, allowed)
        assert np.allclose(weights, expected_weights, atol=1e-12)
        assert np.allclose(output, expected_output, atol=1e-12)
        assert np.array_equal(attention.forward(x, mask.astype(int))[1], weights)


def test_a_mask_can_only_take_away(x):
    attention = sharpened()
    plain = attention.forward(x)
    for mask in (np.ones((7, 7), bool), np.tril(np.ones((7, 7), bool))):
        for found, expected in zip(attention.forward(x, mask), plain, strict=True):
            assert np.array_equal(found, expected)


def test_mask_fill_is_the_score_of_a_forbidden_pair(x):
    seen = {}
    for fill, score in (("min", np.finfo(np.float64).min), (-1e9, -1e9), (-np.inf, -np.inf)):
        attention = sharpened(mask_fill=fill)
        tables = attention.rotary(np.arange(7)[None])
        later = np.triu(np.ones((7, 7), bool), 1)[None, None]
        attention(
            x,
            tables,
            later,
            record=lambda name, array: seen.__setitem__(name, array if callable(array) else array.copy()),
        )
        assert np.all(seen["attention_scores"][:, :, later[0, 0]] == score)


def test_defaults_are_phi():
    attention = PhiAttention(2048, 32, 64, seed=0)
    assert (attention.pairing, attention.rotary_dim, attention.scaling) == ("half", 32, 0.125)
    assert attention.mask_fill == np.finfo(np.float64).min
    assert attention.o_proj.bias is not None
    assert attention.q_proj.weight.std() == pytest.approx(0.02, rel=0.01)
    assert attention.v_proj.bias is not None
    assert attention.v_proj.bias.std() == pytest.approx(0.02, rel=0.1)


def test_a_choice_changes_nothing_but_itself(x):
    plain = PhiAttention(24, 4, 6, seed=3)
    same = PhiAttention(24, 4, 6, seed=3)
    other = PhiAttention(24, 4, 6, seed=4)
    without = PhiAttention(24, 4, 6, seed=3, bias=False, pairing="interleaved", rotary_dim=6, mask_fill=-1e9)
    assert np.array_equal(plain.forward(x)[0], same.forward(x)[0])
    assert not np.array_equal(plain.q_proj.weight, other.q_proj.weight)
    assert np.array_equal(plain.k_proj.weight, without.k_proj.weight)
    assert not np.array_equal(plain.q_proj.weight, plain.k_proj.weight)
    assert PhiAttention(24, 4).q_proj.weight.any()


@pytest.mark.parametrize("choices", [{}, {"qk_layernorm": True}, {"num_kv_heads": 2}, {"bias": False}])
def test_the_other_pairing_with_reordered_weights_is_the_same_attention(x, choices):
    attention = sharpened(rotary_dim=4, **choices)
    if attention.q_layernorm is not None and attention.k_layernorm is not None:
        attention.q_layernorm.weight[:] = np.arange(6)
        attention.k_layernorm.bias[:] = np.arange(6)
    other = attention.with_pairing("interleaved")
    assert other.pairing == "interleaved"
    assert attention.pairing == "half"
    for found, expected in zip(other.forward(x), attention.forward(x), strict=True):
        assert np.allclose(found, expected, atol=1e-12)
    again = other.with_pairing("half")
    assert np.array_equal(again.q_proj.weight, attention.q_proj.weight)
    # The pairing alone, without the reordering, is another attention.
    other.q_proj, other.k_proj = attention.q_proj, attention.k_proj
    assert np.abs(other.forward(x)[1] - attention.forward(x)[1]).max() > 0.01


def test_positions(x):
    attention = sharpened()
    shuffled = [4, 0, 9, 2000, 1, 3000, 5]
    found = attention.forward(x, positions=shuffled)
    for array, expected in zip(found, by_hand(attention, x, positions=shuffled), strict=True):
        assert np.allclose(array, expected, atol=1e-10)
    for array, expected in zip(attention.forward(x, positions=np.arange(7) + 1234), attention.forward(x), strict=True):
        assert np.allclose(array, expected, atol=1e-10)
    without = sharpened(rotary_dim=0)
    assert np.array_equal(without.forward(x, positions=shuffled)[0], without.forward(x)[0])


def test_what_is_given_stays_as_it_is(x):
    before = x.copy()
    mask = np.ones((7, 7), bool)
    sharpened().forward(x, mask)
    assert np.array_equal(x, before)
    assert mask.all()


def test_float32():
    attention = PhiAttention(24, 4, 6, seed=1, dtype=np.float32)
    output, weights = attention.forward(np.ones((1, 4, 24)))
    assert output.dtype == weights.dtype == np.float32


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: PhiAttention(24, 4, 6, rotary_dim=3), ShapeError, "even"),
        (lambda: PhiAttention(24, 4, 6, rotary_dim=8), ShapeError, "6 dimensions"),
        (lambda: PhiAttention(24, 5), ShapeError, "head_dim"),
        (lambda: PhiAttention(24, 0, 6), ShapeError, "num_heads is 0"),
        (lambda: PhiAttention(24, 4, -6), ShapeError, "head_dim is -6"),
        (lambda: PhiAttention(24, 4, 6, num_kv_heads=3), ShapeError, "evenly"),
        (lambda: PhiAttention(24, 4, 6, pairing="thirds"), InputError, "thirds"),  # pyright: ignore
        (lambda: PhiAttention(24, 4, 6, mask_fill="max"), InputError, "max"),  # pyright: ignore
        (lambda: PhiAttention(24, 4, 6, mask_fill=math.nan), InputError, "nan"),
        (lambda: PhiAttention(24, 4, 6, dtype=np.float16), InputError, "float16"),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((7, 24))), ShapeError, "batch seq 24"),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((1, 7, 23))), ShapeError, "23"),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((1, 0, 24))), ShapeError, "empty"),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((3, 7, 24)), np.ones((6, 6), bool)), ShapeError, r"\[7 7\]"),
        (
            lambda: PhiAttention(24, 4, 6).forward(np.ones((3, 7, 24)), np.ones((2, 7, 7), bool)),
            ShapeError,
            r"\[2, 7, 7\]",
        ),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((1, 7, 24)), np.zeros((7, 7))), InputError, "true"),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((1, 7, 24)), np.full((7, 7), 2)), InputError, "true"),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((1, 7, 24)), positions=[0, 1]), ShapeError, r"\[2\]"),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((1, 2, 24)), positions=[0, -1]), InputError, "from 0"),
        (lambda: PhiAttention(24, 4, 6).forward(np.ones((1, 2, 24)), positions=[0, 0.5]), InputError, "whole"),
    ],
)
def test_bad_input(call, kind, words):
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, CutawayError)
