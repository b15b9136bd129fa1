"""Rotary position embedding: a position is told by turning pairs of dimensions.

A head's query is cut into pairs of dimensions, each pair a point in a plane, and at position m pair i is turned by the
angle

    θ(m, i) = m · base^(-2i / d)        (d: how many dimensions are rotated)

and a key likewise. The product of a query at m with a key at n then depends on the two vectors and on m - n alone,
since turning both by the same angle changes nothing (Su et al. 2021, arXiv:2104.09864, section 3.2). **Low-index pairs
turn fastest**: pair 0 turns by one radian a position, the last pair by about 1/base.

Two ways of choosing the pairs are in use, and a checkpoint works with the one it was trained with only:

- `half` (Phi, Llama, GPT-NeoX; transformers' `rotate_half`): dimension i with dimension i + d/2;
- `interleaved` (the paper, GPT-J): dimension 2i with dimension 2i + 1.

They are the same map up to a fixed reordering of the head's dimensions (`pairing_permutation`), and since queries and
keys are reordered alike, scores agree. Phi is *partial*: dimensions from d on pass through unchanged.

transformers computes the angle in float32 whatever the model's dtype (`PhiRotaryEmbedding.forward`), so that at
position 2,000 it is right to about 1e-4 radian. Functions here compute it in float64 unless `angle_dtype` says float32,
which gives transformers' own angles bit for bit; `Phi` does so by default, being the real model and not the ideal one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cutaway.errors import InputError, ShapeError
from cutaway.reference.parts import Array, IntArray

Pairing = Literal["half", "interleaved"]
"""Which dimensions of a head turn together."""

_FIRST = 2048
_LONGEST_TABLE = 1 << 17


class RotaryTables(NamedTuple):
    """Cosines and sines of the angles at some positions, each `[... rotary_dim/2]`, one column a pair."""

    cos: Array
    sin: Array


def rotary_frequencies(rotary_dim: int, base: float = 10000.0, angle_dtype: DTypeLike = np.float64) -> Array:
    """`base^(-2i / rotary_dim)` for each pair i: radians a position, falling from 1.

    Su et al. 2021, equation 15; `PhiRotaryEmbedding.compute_default_rope_parameters` in transformers, whose float32
    steps `angle_dtype=np.float32` repeats.

    Returns:
        `[rotary_dim/2]`.

    Raises:
        ShapeError: `rotary_dim` is odd or negative.
    """
    check_rotary_dim(rotary_dim)
    exponents = np.arange(0, rotary_dim, 2, dtype=angle_dtype) / np.asarray(max(rotary_dim, 1), angle_dtype)
    powers = np.float64(base) ** exponents.astype(np.float64)
    return 1 / powers.astype(angle_dtype)


def rotary_angles(
    positions: ArrayLike, rotary_dim: int, base: float = 10000.0, angle_dtype: DTypeLike = np.float64
) -> Array:
    """θ(m, i) in radians for each position m and pair i.

    Args:
        positions: `[...]`, whole numbers.
        rotary_dim: how many dimensions are rotated; even.
        base: 10000 on every Phi checkpoint.
        angle_dtype: the precision of frequency and product.

    Returns:
        `[... rotary_dim/2]`.
    """
    frequencies = rotary_frequencies(rotary_dim, base, angle_dtype)
    return np.asarray(positions).astype(angle_dtype)[..., None] * frequencies


def rotary_tables(
    positions: ArrayLike,
    rotary_dim: int,
    base: float = 10000.0,
    *,
    angle_dtype: DTypeLike = np.float64,
    dtype: DTypeLike = np.float64,
) -> RotaryTables:
    """Cosine and sine of θ(m, i), rounded to `angle_dtype` and given in `dtype`; each `[... rotary_dim/2]`.

    Raises:
        ShapeError: `rotary_dim` is odd or negative.
    """
    angles = rotary_angles(positions, rotary_dim, base, angle_dtype).astype(np.float64)
    cos, sin = np.cos(angles).astype(angle_dtype), np.sin(angles).astype(angle_dtype)
    return RotaryTables(cos.astype(dtype, copy=False), sin.astype(dtype, copy=False))


def rotate(x: Array, cos: Array, sin: Array, pairing: Pairing = "half", out: Array | None = None) -> Array:
    """Turn each pair (a, b) of `x` into (a cos - b sin, b cos + a sin); dimensions beyond the pairs stay.

    `apply_rotary_pos_emb` in transformers' `modeling_phi.py`, and Su et al. 2021, equation 34.

    Args:
        x: `[... seq head_dim]`.
        cos: `[... seq rotary_dim/2]`, of axes that broadcast against those of `x`.
        sin: likewise.
        pairing: which dimensions turn together.
        out: where to write; `x` itself is allowed.

    Returns:
        An array shaped as `x`.

    Raises:
        ShapeError: the head is narrower than the tables.
        InputError: `pairing` is neither of the two.
    """
    num_pairs = cos.shape[-1]
    if 2 * num_pairs > x.shape[-1]:
        raise ShapeError(
            f"the tables turn {2 * num_pairs} dimensions and the head has {x.shape[-1]}; "
            "make the tables with a rotary_dim of at most the head's width"
        )
    if out is None:
        out = np.array(x)
    elif out is not x:
        out[...] = x
    first, second = _pairs(out, num_pairs, pairing)
    first_before = first.copy()
    first *= cos
    first -= second * sin
    second *= cos
    second += first_before * sin
    return out


def _pairs(x: Array, num_pairs: int, pairing: Pairing) -> tuple[Array, Array]:
    """The first and the second members of all pairs, as views into `x`."""
    check_pairing(pairing)
    if pairing == "half":
        return x[..., :num_pairs], x[..., num_pairs : 2 * num_pairs]
    return x[..., 0 : 2 * num_pairs : 2], x[..., 1 : 2 * num_pairs : 2]


def pairing_permutation(rotary_dim: int, head_dim: int | None = None, *, to: Pairing = "interleaved") -> IntArray:
    """The order of a head's dimensions that turns one pairing into the other.

    With `p = pairing_permutation(d)`: `rotate(x, cos, sin, "half")[..., p]` equals
    `rotate(x[..., p], cos, sin, "interleaved")`. `to="half"` gives the inverse.

    Args:
        rotary_dim: how many dimensions are rotated; even.
        head_dim: the head's width; dimensions from `rotary_dim` on keep their places. `rotary_dim` when left out.
        to: the pairing of the reordered vector.

    Returns:
        `[head_dim]` indices.

    Raises:
        ShapeError: `rotary_dim` is odd, negative or wider than the head.
        InputError: `to` is neither pairing.
    """
    head_dim = rotary_dim if head_dim is None else head_dim
    check_rotary_dim(rotary_dim, head_dim)
    check_pairing(to)
    half = np.arange(rotary_dim).reshape(2, -1)  # [rotary_dim] -> [2 pairs]: row 0 first members, row 1 second members
    interleaved = half.T.reshape(-1)  # [pairs 2] -> [rotary_dim]: 0, d/2, 1, d/2 + 1, …
    order = interleaved if to == "interleaved" else np.argsort(interleaved)
    return np.concatenate([order, np.arange(rotary_dim, head_dim)])


class Rotary:
    """Rotary tables of one model: 2,048 positions at first, longer ones on demand.

    Args:
        rotary_dim: how many dimensions of a head are rotated; even.
        base: 10000 on every Phi checkpoint (`rope_theta` in the config).
        angle_dtype: the precision of the angles; see the head of this module.
        dtype: the dtype of the tables.

    Raises:
        ShapeError: `rotary_dim` is odd or negative.
    """

    def __init__(
        self,
        rotary_dim: int,
        base: float = 10000.0,
        *,
        angle_dtype: DTypeLike = np.float64,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_rotary_dim(rotary_dim)
        self.rotary_dim = rotary_dim
        self.base = base
        self.angle_dtype = angle_dtype
        self.dtype = dtype
        self._tables: RotaryTables | None = None

    def __call__(self, positions: IntArray) -> RotaryTables:
        """The tables' rows at these positions, `[...]` to `[... rotary_dim/2]` each."""
        needed = max(_FIRST, int(positions.max(initial=0)) + 1)
        tables = self._tables
        if needed > _LONGEST_TABLE:
            return self._compute(positions)
        if tables is None or needed > len(tables.cos):
            tables = self._tables = self._compute(np.arange(1 << (needed - 1).bit_length()))
        return RotaryTables(tables.cos[positions], tables.sin[positions])

    def _compute(self, positions: IntArray) -> RotaryTables:
        return rotary_tables(positions, self.rotary_dim, self.base, angle_dtype=self.angle_dtype, dtype=self.dtype)


def check_rotary_dim(rotary_dim: int, head_dim: int | None = None) -> None:
    """Refuse a number of rotated dimensions that does not make pairs, or is wider than the head."""
    if rotary_dim < 0 or rotary_dim % 2:
        raise ShapeError(
            f"rotary_dim is {rotary_dim}: dimensions are rotated in pairs, so it must be even and not negative"
        )
    if head_dim is not None and rotary_dim > head_dim:
        raise ShapeError(f"rotary_dim is {rotary_dim} and a head has {head_dim} dimensions; rotate at most those")


def check_pairing(pairing: str) -> None:
    """Refuse a word that is neither pairing."""
    if pairing not in ("half", "interleaved"):
        raise InputError(f"pairing is {pairing!r}; it is 'half' (Phi) or 'interleaved'")
