"""Rotary tables, both pairings, and the order of dimensions that turns one into the other."""

from __future__ import annotations

import numpy as np
import pytest

from cutaway.errors import CutawayError, InputError, ShapeError
from cutaway.reference import (
    Rotary,
    pairing_permutation,
    rotary_angles,
    rotary_frequencies,
    rotary_tables,
    rotate,
)


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_the_table_for_head_dim_64():
    cos, sin = rotary_tables(range(4), 64)
    assert np.allclose(
        cos[:, :4],
        [[1, 1, 1, 1], [0.540, 0.732, 0.846, 0.912], [-0.416, 0.071, 0.431, 0.665], [-0.990, -0.628, -0.116, 0.301]],
        atol=5e-4,
    )
    assert np.allclose(
        sin[:, :4],
        [[0, 0, 0, 0], [0.841, 0.682, 0.533, 0.409], [0.909, 0.997, 0.902, 0.747], [0.141, 0.778, 0.993, 0.954]],
        atol=5e-4,
    )


def test_the_angle_formula():
    positions = [0, 1, 63, 2000, 100_000]
    angles = rotary_angles(positions, 10, base=500.0)
    for row, m in enumerate(positions):
        for i in range(5):
            assert angles[row, i] == pytest.approx(m * 500.0 ** (-2 * i / 10), rel=1e-14, abs=0)


def test_low_index_pairs_turn_fastest():
    frequencies = rotary_frequencies(32)
    assert frequencies[0] == 1.0
    assert np.all(np.diff(frequencies) < 0)
    assert frequencies[-1] == pytest.approx(10000 ** (-30 / 32))


def rotate_by_matrix(x, positions, rotary_dim, pairs):
    """Each pair turned by its 2 × 2 matrix, one at a time."""
    out = x.copy()
    for s, m in enumerate(positions):
        for i, (a, b) in enumerate(pairs):
            angle = m * 10000.0 ** (-2 * i / rotary_dim)
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            out[..., s, [a, b]] = x[..., s, [a, b]] @ turn.T
    return out


@pytest.mark.parametrize(("rotary_dim", "head_dim"), [(32, 80), (8, 8), (2, 5), (0, 4)])
def test_rotation_against_matrices(random, rotary_dim, head_dim):
    positions = [0, 1, 63, 2000]
    x = random.standard_normal((3, 5, 4, head_dim))
    tables = rotary_tables(positions, rotary_dim)
    half = [(i, i + rotary_dim // 2) for i in range(rotary_dim // 2)]
    interleaved = [(2 * i, 2 * i + 1) for i in range(rotary_dim // 2)]
    for pairing, pairs in (("half", half), ("interleaved", interleaved)):
        turned = rotate(x, *tables, pairing)
        assert np.allclose(turned, rotate_by_matrix(x, positions, rotary_dim, pairs), atol=1e-12)
        assert np.array_equal(turned[..., rotary_dim:], x[..., rotary_dim:])
        assert np.array_equal(turned[..., 0, :], x[..., 0, :])
        assert np.allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1))


def test_rotation_can_write_in_place_and_does_not_unless_told(random):
    x = random.standard_normal((2, 6, 8))
    before = x.copy()
    tables = rotary_tables(range(6), 4)
    turned = rotate(x, *tables)
    assert np.array_equal(x, before)
    other = np.empty_like(x)
    assert rotate(x, *tables, out=other) is other
    assert np.array_equal(other, turned)
    assert rotate(x, *tables, out=x) is x
    assert np.array_equal(x, turned)


@pytest.mark.parametrize(("rotary_dim", "head_dim"), [(32, 80), (8, None), (2, 5)])
def test_the_pairings_are_one_map_up_to_an_order(random, rotary_dim, head_dim):
    order = pairing_permutation(rotary_dim, head_dim)
    back = pairing_permutation(rotary_dim, head_dim, to="half")
    x = random.standard_normal((3, 4, len(order)))
    tables = rotary_tables([0, 1, 63, 2000], rotary_dim)
    assert np.array_equal(x[..., order][..., back], x)
    assert np.array_equal(rotate(x, *tables, "half")[..., order], rotate(x[..., order], *tables, "interleaved"))
    assert np.array_equal(rotate(x[..., back], *tables, "half")[..., order], rotate(x, *tables, "interleaved"))
    assert list(order[rotary_dim:]) == list(range(rotary_dim, len(order)))


def test_the_order_written_out():
    assert list(pairing_permutation(6, 8)) == [0, 3, 1, 4, 2, 5, 6, 7]
    assert list(pairing_permutation(6, 8, to="half")) == [0, 2, 4, 1, 3, 5, 6, 7]


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_scores_depend_on_the_distance_alone(random, pairing):
    query, key = random.standard_normal((2, 5, 16))
    scores = []
    for shift in (0, 1, 500, 2000):
        tables = rotary_tables(np.arange(5) + shift, 12)
        scores.append(rotate(query, *tables, pairing) @ rotate(key, *tables, pairing).T)
    for shifted in scores[1:]:
        assert np.allclose(shifted, scores[0], atol=1e-10)
    same = rotate(np.ones((5, 12)), *rotary_tables(np.arange(5), 12), pairing)
    assert len(np.unique(np.round(same @ same.T, 9))) == 5


def test_tables_grow_on_demand():
    rotary = Rotary(8)
    positions = np.array([[0, 2047], [2048, 5000]])
    cos, sin = rotary(positions)
    assert cos.shape == sin.shape == (2, 2, 4)
    exact = rotary_tables(positions, 8)
    assert np.array_equal(cos, exact.cos)
    assert np.array_equal(sin, exact.sin)
    assert np.array_equal(rotary(np.array([3])).cos, rotary_tables([3], 8).cos)
    assert np.array_equal(rotary(np.array([10**9])).cos, rotary_tables([10**9], 8).cos)


def test_angles_past_the_context_stay_apart():
    for angle_dtype in (np.float32, np.float64):
        cos, sin = Rotary(8, angle_dtype=angle_dtype, dtype=np.float32)(np.array([2048, 2049, 8191, 8192]))
        assert cos.dtype == np.float32
        for table in (cos, sin):
            assert np.all(table[0] != table[1])
            assert np.all(table[2] != table[3])


def test_float32_angles_are_those_of_transformers_and_float64_angles_are_the_formula():
    positions = np.arange(3000)
    single = rotary_tables(positions, 32, angle_dtype=np.float32)
    double = rotary_tables(positions, 32)
    gap = np.abs(single.cos - double.cos).max(axis=1)
    assert gap[1] < 1e-6
    assert 1e-5 < gap[2000:].max() < 1e-3


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: rotary_frequencies(7), ShapeError, "7"),
        (lambda: rotary_frequencies(-2), ShapeError, "-2"),
        (lambda: rotary_tables([0], 31), ShapeError, "even"),
        (lambda: Rotary(5), ShapeError, "pairs"),
        (lambda: pairing_permutation(6, 4), ShapeError, "4 dimensions"),
        (lambda: pairing_permutation(5), ShapeError, "even"),
        (lambda: pairing_permutation(4, to="thirds"), InputError, "thirds"),
        (lambda: rotate(np.ones((2, 4)), *rotary_tables([0, 1], 6)), ShapeError, "head has 4"),
        (lambda: rotate(np.ones((2, 4)), *rotary_tables([0, 1], 4), "thirds"), InputError, "interleaved"),
    ],
)
def test_bad_input(call, kind, words):
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, CutawayError)
