"""Phi's attention, from the normed stream to what it adds to the stream.

    project to q, k, v  →  split into heads  →  rotate q and k  →  q·k, scaled  →  mask  →  softmax
    →  mix the values  →  merge the heads  →  project back

`PhiAttention` in transformers' `modeling_phi.py`, after Vaswani et al. 2017, arXiv:1706.03762, section 3.2. A common
teaching version differs in four choices, all of them arguments here: `pairing`, `rotary_dim`, `bias` and `mask_fill`.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cutaway.errors import InputError, ShapeError
from cutaway.reference.cache import Cache
from cutaway.reference.inputs import as_positions, blocked_pairs
from cutaway.reference.parts import Array, BoolArray, IntArray, LayerNorm, Linear, float_dtype, softmax
from cutaway.reference.record import Record, ignore
from cutaway.reference.rotary import (
    Pairing,
    Rotary,
    RotaryTables,
    check_pairing,
    check_rotary_dim,
    pairing_permutation,
    rotate,
)
from cutaway.reference.weights import RandomWeights, Weights, layer_norm, linear


class PhiAttention:
    """Multi-head causal attention with partial rotary positions.

    Args:
        hidden_size: width of the residual stream.
        num_heads: query heads.
        head_dim: width of a head; `hidden_size // num_heads` when left out.
        seed: seed of the random weights (normal, standard deviation 0.02, biases too); None draws one.
        num_kv_heads: key and value heads, each shared by `num_heads / num_kv_heads` query heads; `num_heads` when left
            out.
        pairing: which dimensions turn together; `half` on Phi.
        rotary_dim: how many of a head's dimensions are rotated; half of them when left out, as on phi-1 and phi-1.5
            (phi-2 rotates 32 of 80). 0 leaves positions out altogether.
        rope_theta: the base of the rotary's frequencies.
        bias: whether the four projections have biases; they do on Phi.
        mask_fill: the score of a pair that may not be attended to: `min`, the dtype's lowest number, as in
            transformers, or a number such as `-1e9` or `-numpy.inf`.
        qk_layernorm: a layer norm over each query and key head before the rotary; off on every checkpoint.
        layer_norm_eps: that norm's epsilon.
        weights: where the weights come from, instead of `seed`.
        dtype: dtype of weights and arithmetic, float32 or float64.
        angle_dtype: precision of the rotary angles in `forward`; see `cutaway.reference.rotary`.

    Attributes:
        q_proj: `[hidden_size]` to `[num_heads·head_dim]`.
        k_proj: `[hidden_size]` to `[num_kv_heads·head_dim]`; `v_proj` likewise.
        o_proj: `[num_heads·head_dim]` to `[hidden_size]`; Phi's own name for it is `dense`.
        scaling: `head_dim ** -0.5`.

    Raises:
        ShapeError: a size is not positive, the rotary dimension odd or too wide, or the heads not evenly shared.
        InputError: `pairing` or `mask_fill` is not one of the choices.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        head_dim: int | None = None,
        *,
        seed: int | None = None,
        num_kv_heads: int | None = None,
        pairing: Pairing = "half",
        rotary_dim: int | None = None,
        rope_theta: float = 10000.0,
        bias: bool = True,
        mask_fill: Literal["min"] | float = "min",
        qk_layernorm: bool = False,
        layer_norm_eps: float = 1e-5,
        weights: Weights | None = None,
        dtype: DTypeLike = np.float64,
        angle_dtype: DTypeLike = np.float64,
    ) -> None:
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check_sizes(hidden_size, self.num_heads, self.num_kv_heads)
        self.head_dim = _head_dim(hidden_size, num_heads, head_dim)
        self.rotary_dim = self.head_dim // 4 * 2 if rotary_dim is None else rotary_dim
        check_rotary_dim(self.rotary_dim, self.head_dim)
        check_pairing(pairing)
        self.pairing: Pairing = pairing
        self.dtype = float_dtype("dtype", dtype)
        self.mask_fill = _fill(mask_fill, self.dtype)
        self.scaling = self.head_dim**-0.5
        self.rotary = Rotary(self.rotary_dim, rope_theta, angle_dtype=angle_dtype, dtype=dtype)

        if weights is None:
            weights = RandomWeights(seed, 0.02, bias_std=0.02, dtype=dtype)
        query_size, key_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.q_proj = linear(weights, "q_proj", hidden_size, query_size, bias)
        self.k_proj = linear(weights, "k_proj", hidden_size, key_size, bias)
        self.v_proj = linear(weights, "v_proj", hidden_size, key_size, bias)
        self.o_proj = linear(weights, "o_proj", query_size, hidden_size, bias)
        self.q_layernorm: LayerNorm | None = None
        self.k_layernorm: LayerNorm | None = None
        if qk_layernorm:
            self.q_layernorm = layer_norm(weights, "q_layernorm", self.head_dim, layer_norm_eps)
            self.k_layernorm = layer_norm(weights, "k_layernorm", self.head_dim, layer_norm_eps)

    def forward(
        self, x: ArrayLike, mask: ArrayLike | None = None, *, positions: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """Attend from every position of `x` to itself and to earlier ones.

        Args:
            x: `[batch seq hidden_size]`.
            mask: true where attention is allowed, `[query key]`, `[batch query key]` or `[batch num_heads query key]`,
                an axis of length 1 standing for all. Attention stays causal: a mask can only take away. Without one,
                every earlier position is allowed.
            positions: `[seq]` or `[batch seq]`, the rotary positions; 0, 1, 2, … when left out.

        Returns:
            The output `[batch seq hidden_size]` and the weights `[batch num_heads seq seq]`, whose rows sum to 1. The
            row of a query to which the mask leaves nothing is uniform over all positions, as in transformers' eager
            attention.

        Raises:
            ShapeError: `x`, `mask` or `positions` is of another shape.
            InputError: `mask` holds something other than true and false, or a position is negative.
        """
        stream: Array = np.asarray(x, self.dtype)
        if stream.ndim != 3 or stream.shape[-1] != self.hidden_size or 0 in stream.shape:
            raise ShapeError(f"x has shape {list(stream.shape)}; it is to be [batch seq {self.hidden_size}], not empty")
        batch, seq, _ = stream.shape
        where = as_positions(positions, batch, seq, past=0)
        blocked = blocked_pairs(seq, past=0)
        if mask is not None:
            forbidden = ~_allowed(mask, batch, self.num_heads, seq)
            blocked = forbidden if blocked is None else blocked | forbidden
        return self(stream, self.rotary(where), blocked)

    def __call__(
        self,
        x: Array,
        tables: RotaryTables,
        blocked: BoolArray | None = None,
        *,
        cache: Cache | None = None,
        layer: int = 0,
        record: Record = ignore,
    ) -> tuple[Array, Array]:
        """The same, as the model calls it: tables and mask are made once and shared by all blocks.

        Args:
            x: `[batch seq hidden_size]`, the normed stream.
            tables: cosines and sines, `[batch seq rotary_dim/2]` each, a batch of 1 standing for all.
            blocked: true where attention is not allowed, `[batch heads query key]` with 1 standing for all; None where
                everything is allowed.
            cache: keys and values of earlier positions, to which these are added.
            layer: which layer of the cache.
            record: told each value's name and array.

        Returns:
            The output `[batch seq hidden_size]` and the probabilities `[batch num_heads seq key]`.
        """
        queries, keys, values = self.project(x)
        cos, sin = (table[:, None] for table in tables)  # [batch seq pairs] -> [batch 1 seq pairs]: all heads alike
        rotate(queries, cos, sin, self.pairing, out=queries)
        rotate(keys, cos, sin, self.pairing, out=keys)
        if cache is not None:
            keys, values = cache.extend(layer, keys, values)
        record("attention_queries", queries)
        record("attention_keys", keys)
        record("attention_values", values)

        scores = self.score(queries, keys, blocked)
        record("attention_scores", scores)
        probabilities = softmax(scores, out=scores)
        record("attention_probabilities", probabilities)

        heads = self.mix(probabilities, values)
        record("attention_head_outputs", heads)
        record("attention_premix", heads)
        batch, seq, _, _ = heads.shape
        output = self.o_proj(
            heads.reshape(batch, seq, -1)
        )  # [b s heads head_dim] -> [b s heads·head_dim] -> [b s hidden]
        record("head_contributions", lambda: self.contributions(heads))
        record("attention_output", output)
        return output, probabilities

    def project(self, x: Array) -> tuple[Array, Array, Array]:
        """Queries, keys and values before the rotary, `[batch heads seq head_dim]` each."""
        batch, seq, _ = x.shape
        # [b s hidden] -> [b s heads·head_dim] -> [b s heads head_dim] -> [b heads s head_dim]
        queries = self.q_proj(x).reshape(batch, seq, self.num_heads, self.head_dim).transpose(0, 2, 1, 3)
        keys = self.k_proj(x).reshape(batch, seq, self.num_kv_heads, self.head_dim).transpose(0, 2, 1, 3)
        values = self.v_proj(x).reshape(batch, seq, self.num_kv_heads, self.head_dim).transpose(0, 2, 1, 3)
        if self.q_layernorm is not None and self.k_layernorm is not None:
            queries, keys = self.q_layernorm(queries), self.k_layernorm(keys)
        return queries, keys, values

    def score(self, queries: Array, keys: Array, blocked: BoolArray | None = None) -> Array:
        """`q·k / √head_dim` for every query and key, `mask_fill` where blocked: `[batch num_heads query key]`.

        Vaswani et al. 2017, equation 1. Query head j reads key head `j // (num_heads / num_kv_heads)`, as `repeat_kv`
        in transformers lays them out.
        """
        batch, _, num_queries, head_dim = queries.shape
        num_keys = keys.shape[2]
        # [b heads q d] -> [b kv_heads group q d], against [b kv_heads 1 d k]: a group of heads shares one key head
        grouped = queries.reshape(batch, self.num_kv_heads, -1, num_queries, head_dim)
        scores = grouped @ keys[:, :, None].swapaxes(-1, -2)
        scores = scores.reshape(batch, self.num_heads, num_queries, num_keys)  # [b kv_heads group q k] -> [b heads q k]
        scores *= self.scaling
        if blocked is not None:
            np.copyto(scores, self.mask_fill, where=blocked)
        return scores

    def mix(self, probabilities: Array, values: Array) -> Array:
        """Each head's average of the values under its pattern: `[batch seq num_heads head_dim]`."""
        batch, _, num_queries, num_keys = probabilities.shape
        # [b heads q k] -> [b kv_heads group q k], against [b kv_heads 1 k d]
        grouped = probabilities.reshape(batch, self.num_kv_heads, -1, num_queries, num_keys)
        # Written straight into the layout that the output projection takes, so that merging the heads copies nothing.
        merged = np.empty((batch, num_queries, self.num_heads, self.head_dim), probabilities.dtype)
        by_group = merged.reshape(batch, num_queries, self.num_kv_heads, -1, self.head_dim).transpose(0, 2, 3, 1, 4)
        np.matmul(grouped, values[:, :, None], out=by_group)
        return merged

    def contributions(self, heads: Array) -> Array:
        """Each head's part of the output, `[batch seq num_heads hidden_size]`, without the bias, which is of no head.

        Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits": the output projection of the heads side
        by side is the sum of what each head's rows of it make of that head alone.
        """
        hidden_size = self.o_proj.weight.shape[0]
        # [hidden heads·head_dim] -> [hidden heads head_dim] -> [heads head_dim hidden]
        each = self.o_proj.weight.reshape(hidden_size, self.num_heads, -1).transpose(1, 2, 0)
        return np.einsum("bshd,hdm->bshm", heads, each)

    def with_pairing(self, pairing: Pairing) -> PhiAttention:
        """The same attention in the other pairing: queries' and keys' dimensions reordered, nothing else changed.

        Scores, weights and output agree with the original's to rounding.
        """
        check_pairing(pairing)
        other = copy.copy(self)
        if pairing == self.pairing:
            return other
        order = pairing_permutation(self.rotary_dim, self.head_dim, to=pairing)
        other.pairing = pairing
        other.q_proj = _reordered(self.q_proj, order, self.num_heads)
        other.k_proj = _reordered(self.k_proj, order, self.num_kv_heads)
        if self.q_layernorm is not None and self.k_layernorm is not None:
            q_norm, k_norm = self.q_layernorm, self.k_layernorm
            other.q_layernorm = LayerNorm(q_norm.weight[order], q_norm.bias[order], q_norm.eps)
            other.k_layernorm = LayerNorm(k_norm.weight[order], k_norm.bias[order], k_norm.eps)
        return other


def _reordered(projection: Linear, order: IntArray, heads: int) -> Linear:
    """The projection with the dimensions of every head in this order."""
    out_features, in_features = projection.weight.shape
    # [heads·head_dim in] -> [heads head_dim in], reordered, and back
    weight = projection.weight.reshape(heads, -1, in_features)[:, order].reshape(out_features, in_features)
    if projection.bias is None:
        return Linear(weight, None)
    return Linear(weight, projection.bias.reshape(heads, -1)[:, order].reshape(out_features))


def _check_sizes(hidden_size: int, num_heads: int, num_kv_heads: int) -> None:
    for name, size in (("hidden_size", hidden_size), ("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
        if size < 1:
            raise ShapeError(f"{name} is {size}; it must be positive")
    if num_heads % num_kv_heads:
        raise ShapeError(f"{num_heads} query heads cannot share {num_kv_heads} key heads evenly; choose a divisor")


def _head_dim(hidden_size: int, num_heads: int, head_dim: int | None) -> int:
    if head_dim is None:
        if hidden_size % num_heads:
            raise ShapeError(f"hidden_size {hidden_size} is not {num_heads} heads of one width; give head_dim")
        return hidden_size // num_heads
    if head_dim < 1:
        raise ShapeError(f"head_dim is {head_dim}; it must be positive")
    return head_dim


def _fill(mask_fill: str | float, dtype: np.dtype[np.floating[Any]]) -> float:
    if mask_fill == "min":
        return float(np.finfo(dtype).min)
    if isinstance(mask_fill, str) or np.isnan(mask_fill):
        raise InputError(f"mask_fill is {mask_fill!r}; it is 'min' or a number such as -1e9 or -numpy.inf")
    return float(mask_fill)


def _allowed(mask: ArrayLike, batch: int, num_heads: int, seq: int) -> BoolArray:
    """A mask as `[batch heads query key]` booleans, 1 standing for all."""
    given = np.asarray(mask)
    if given.dtype.kind not in "biu" or not np.isin(given, (0, 1)).all():
        raise InputError("the mask is to hold true where attention is allowed and false elsewhere (or 1 and 0)")
    allowed = given.astype(bool)
    if allowed.ndim == 3:
        allowed = allowed[:, None]  # [batch query key] -> [batch 1 query key]
    try:
        np.broadcast_to(allowed, (batch, num_heads, seq, seq))
    except ValueError:
        raise ShapeError(
            f"the mask has shape {list(given.shape)}; it is to be [{seq} {seq}], [{batch} {seq} {seq}] or "
            f"[{batch} {num_heads} {seq} {seq}]"
        ) from None
    return allowed
