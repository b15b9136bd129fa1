"""What is often got wrong inside an attention, done on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from cutaway.reference import (
    Linear,
    Pairing,
    PhiAttention,
    RotaryTables,
    rotary_frequencies,
    rotary_tables,
    rotate,
    softmax,
)
from cutaway.reference.parts import Array
from cutaway.verification.steps import Setting

Causes = Callable[[Setting, Array], Iterator[tuple[str, Array]]]


def _queries(at: Setting, found: Array) -> Iterator[tuple[str, Array]]:
    yield from _rotations(at, found, 0)


def _keys(at: Setting, found: Array) -> Iterator[tuple[str, Array]]:
    yield from _rotations(at, found, 1)


def _rotations(at: Setting, found: Array, which: int) -> Iterator[tuple[str, Array]]:
    attention, x = at.block.self_attn, at.own["attention_norm_output"]
    before = attention.project(x)[which]
    name, linear = (("q_proj", attention.q_proj), ("k_proj", attention.k_proj))[which]
    yield from _turned(at, found, before)
    if attention.q_layernorm is not None:
        unnormed = _heads(linear(x), attention.head_dim)
        yield f"the norm over each head of {name} is missing", _turn(unnormed, at.tables, attention.pairing)
        return
    if linear.bias is None:
        return
    without = _heads(Linear(linear.weight, None)(x), attention.head_dim)
    yield f"the bias of {name} is missing", _turn(without, at.tables, attention.pairing)
    for reason, turned in _turned(at, found, without):
        yield f"the bias of {name} is missing, and {reason}", turned


def _turned(at: Setting, found: Array, before: Array) -> Iterator[tuple[str, Array]]:
    """Ways to turn queries or keys that are not the reference's."""
    attention, config = at.block.self_attn, at.phi.config
    pairing, dims, base = attention.pairing, config.rotary_dim, config.rope_theta
    other: Pairing = "interleaved" if pairing == "half" else "half"
    pairs = {"half": f"i with i + {dims // 2}", "interleaved": "2i with 2i + 1"}
    told = f"the rotary pairs dimensions {pairs[other]} ({other}), not {pairs[pairing]} ({pairing})"
    yield told, _turn(before, at.tables, other)
    yield "the rotary is missing", before
    for dtype, name in ((torch.float16, "float16"), (torch.bfloat16, "bfloat16")):
        told = (
            f"the rotary's frequencies are rounded to {name}, as `.to(torch.{name})` on a built model rounds `inv_freq`"
        )
        yield told, _turn(before, _rounded(at, dtype), pairing)
    yield "the rotary turns the other way", _turn(before, RotaryTables(at.tables.cos, -at.tables.sin), pairing)
    for wrong in _even_first(attention.head_dim, dims):
        tables = _tables(at, wrong, base)
        told = f"the rotary turns {wrong} of the head's {attention.head_dim} dimensions, not {dims}"
        yield told, _turn(before, tables, pairing)
        yield (
            f"{told}, in pairs of {'2i with 2i + 1' if other == 'interleaved' else 'i with i + half'}",
            _turn(before, tables, other),
        )
    for shift in (1, -1):
        if int(at.positions.min()) + shift >= 0:
            yield f"positions are counted from {shift}", _turn(before, _tables(at, dims, base, shift), pairing)
    for wrong in dict.fromkeys((*_bases_of(at, found, before), 1e4, 5e5, 1e6)):
        if wrong != base and wrong > 1:
            yield f"the rotary's base is {wrong:g}, not {base:g}", _turn(before, _tables(at, dims, wrong), pairing)


def _even_first(head_dim: int, but: int) -> list[int]:
    """The even numbers of dimensions, all of them first, then half of them."""
    likely = [head_dim, head_dim // 2, head_dim // 4, *range(2, head_dim, 2)]
    return [dims for dims in dict.fromkeys(likely) if dims > 0 and dims % 2 == 0 and dims != but]


def _tables(at: Setting, dims: int, base: float, shift: int = 0) -> RotaryTables:
    return rotary_tables(at.positions + shift, dims, base, angle_dtype=np.float32, dtype=at.phi.dtype)


def _rounded(at: Setting, dtype: torch.dtype) -> RotaryTables:
    config = at.phi.config
    exact = torch.from_numpy(rotary_frequencies(config.rotary_dim, config.rope_theta, np.float32))
    angles = at.positions[..., None] * exact.to(dtype).double().numpy()
    return RotaryTables(np.cos(angles).astype(at.phi.dtype), np.sin(angles).astype(at.phi.dtype))


def _turn(x: Array, tables: RotaryTables, pairing: Pairing) -> Array:
    cos, sin = (table[:, None] for table in tables)  # [batch seq pairs] -> [batch 1 seq pairs]
    return rotate(x, cos, sin, pairing)


def _bases_of(at: Setting, found: Array, before: Array) -> Iterator[float]:
    """The base by which `before` was turned, from how far each pair is turned at position 1, in round numbers first."""
    pairs = at.tables.cos.shape[-1]
    second = np.broadcast_to(at.positions == 1, before.shape[:1] + before.shape[2:3])
    if not second.any() or pairs < 2 or found.shape != before.shape:
        return
    ours, theirs = (x.transpose(0, 2, 1, 3)[second].astype(np.float64) for x in (before, found))
    points = [x[..., :pairs] + 1j * x[..., pairs : 2 * pairs] for x in (ours, theirs)]
    angles = np.angle((points[0].conj() * points[1]).sum(axis=(0, 1)))[1:]
    exponents = np.arange(1, pairs) / pairs  # pair i turns by base ** -(i / pairs)
    if (angles > 0).any():
        base = float(np.median(angles[angles > 0] ** (-1 / exponents[angles > 0])))
        yield from (float(f"{base:.{digits}g}") for digits in (1, 2, 3, 4, 6))


def _heads(x: Array, head_dim: int) -> Array:
    return x.reshape(*x.shape[:2], -1, head_dim).transpose(0, 2, 1, 3)  # [b s heads·d] -> [b heads s d]


def _values(at: Setting, _: Array) -> Iterator[tuple[str, Array]]:
    attention, x = at.block.self_attn, at.own["attention_norm_output"]
    yield "the bias of v_proj is missing", _heads(Linear(attention.v_proj.weight, None)(x), attention.head_dim)
    value = attention.project(x)[2]
    if value.shape[-1] >= 2 * at.tables.cos.shape[-1]:
        yield "the rotary turns values too", _turn(value, at.tables, attention.pairing)


def _scores(at: Setting, found: Array) -> Iterator[tuple[str, Array]]:
    attention = at.block.self_attn
    queries, keys = at.own["attention_queries"], at.own["attention_keys"]
    free = attention.score(queries, keys)
    blocked = at.blocked
    yield "nothing is masked", free
    if blocked is not None:
        out = np.broadcast_to(blocked, found.shape)
        filled = float(np.sort(found[out])[out.sum() // 2])
        yield f"blocked pairs are filled with about {filled:.3g}", np.where(out, found, free)
    inside = np.ones(found.shape, bool) if blocked is None else ~np.broadcast_to(blocked, found.shape)
    factor = float(np.vdot(free[inside], found[inside]) / max(float(np.vdot(free[inside], free[inside])), 1e-300))
    for words, scale in (
        ("scores are not scaled", 1.0),
        ("scores are divided by head_dim and not by its square root", attention.head_dim**-1.0),
        ("scores are scaled by hidden_size, not head_dim", attention.hidden_size**-0.5),
        ("scores are scaled twice", attention.scaling**2),
        (f"scores are scaled by {attention.scaling * factor:.4g}, not {attention.scaling:.4g}", None),
    ):
        by = factor if scale is None else scale / attention.scaling
        yield words, np.where(inside, free * by, found)
    if attention.num_kv_heads not in (1, attention.num_heads):
        tiled = np.tile(keys, (1, attention.num_heads // attention.num_kv_heads, 1, 1))
        scores = queries @ tiled.swapaxes(-1, -2) * attention.scaling
        yield "query heads share key heads in turn, not in groups", np.where(inside, scores, found)


def _probabilities(at: Setting, _: Array) -> Iterator[tuple[str, Array]]:
    scores = at.own["attention_scores"]
    yield "the softmax runs over queries, not keys", softmax(scores.swapaxes(-1, -2)).swapaxes(-1, -2)
    largest = np.maximum(scores.max(-1, keepdims=True), 0)
    powers = np.exp(scores - largest)
    yield "the softmax has a sink: 1 more below", powers / (powers.sum(-1, keepdims=True) + np.exp(-largest))


def _head_outputs(at: Setting, _: Array) -> Iterator[tuple[str, Array]]:
    attention = at.block.self_attn
    pattern, values = at.own["attention_probabilities"], at.own["attention_values"]
    if attention.num_kv_heads not in (1, attention.num_heads):
        tiled = np.tile(values, (1, attention.num_heads // attention.num_kv_heads, 1, 1))
        yield "query heads share value heads in turn, not in groups", (pattern @ tiled).transpose(0, 2, 1, 3)
    if at.blocked is not None:
        spread = PhiAttention.mix(attention, softmax(np.where(at.blocked, 0, at.own["attention_scores"])), values)
        yield "values are mixed without the mask", spread


def _premix(at: Setting, _: Array) -> Iterator[tuple[str, Array]]:
    heads = at.own["attention_head_outputs"]
    yield "heads are merged without moving them behind the positions", heads.transpose(0, 2, 1, 3).reshape(heads.shape)


ATTENTION_CAUSES: dict[str, Causes] = {
    "attention_queries": _queries,
    "attention_keys": _keys,
    "attention_values": _values,
    "attention_scores": _scores,
    "attention_probabilities": _probabilities,
    "attention_head_outputs": _head_outputs,
    "attention_premix": _premix,
}
"""For each value inside the attention, reasons why it may part, with the value as it would then be."""
