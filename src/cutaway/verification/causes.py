"""Why a value parts: the step is done again with what is often got wrong, and what then agrees is the likely reason.

Each cause is tried on the model's own inputs to that one step, so that a match is evidence and not a guess from the
size of the difference. What is tried is in `attention_causes` and, for everything else, here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from cutaway.reference import LayerNorm, Linear, gelu_new
from cutaway.reference.parts import Array
from cutaway.verification.attention_causes import ATTENTION_CAUSES
from cutaway.verification.steps import Setting, made, norm_of

Cause = tuple[str, Array]
"""A reason, in words, and the value as it would be for that reason."""

Causes = Callable[[Setting, Array], Iterator[Cause]]


def _norm(at: Setting, found: Array) -> Iterator[Cause]:
    x = at.own["stream" if at.layer is None else "layer_input"]
    norm = norm_of(at)
    for eps in (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3):
        if eps != norm.eps:
            yield f"the norm's eps is {eps:g}, not {norm.eps:g}", LayerNorm(norm.weight, norm.bias, eps)(x)
    eps = _eps_of(found, x, norm)
    if eps is not None:
        yield f"the norm's eps is about {eps:.2g}, not {norm.eps:g}", LayerNorm(norm.weight, norm.bias, eps)(x)
    nothing = np.zeros_like(norm.bias)
    yield "the norm's bias is missing", LayerNorm(norm.weight, nothing, norm.eps)(x)
    yield "the norm's weight is missing", LayerNorm(np.ones_like(norm.weight), norm.bias, norm.eps)(x)
    yield "the norm's weight and bias are missing", LayerNorm(np.ones_like(nothing), nothing, norm.eps)(x)
    yield "the norm's weight is counted from 1", LayerNorm(1 + norm.weight, norm.bias, norm.eps)(x)
    squares = np.sqrt(np.square(x).mean(-1, keepdims=True) + norm.eps)
    yield "the norm divides by the root mean square and takes off no mean", x / squares * norm.weight + norm.bias
    yield "the norm is an RMSNorm without a bias", x / squares * norm.weight
    size = x.shape[-1]
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt(np.square(centred).sum(-1, keepdims=True) / (size - 1) + norm.eps)
    yield "the norm's variance is divided by n − 1", centred / deviation * norm.weight + norm.bias
    yield "the stream is not normed", x


def _eps_of(found: Array, x: Array, norm: LayerNorm) -> float | None:
    """The epsilon that makes `found` of `x`, if one does."""
    usable = np.abs(norm.weight) > 0.1 * np.abs(norm.weight).max()
    centred = (x - x.mean(-1, keepdims=True))[..., usable].astype(np.float64)
    normed = ((found - norm.bias)[..., usable] / norm.weight[usable]).astype(np.float64)
    along = np.vecdot(normed, centred)
    variance = np.square(x - x.mean(-1, keepdims=True)).mean(-1)
    fits = along > 0
    if not fits.any():
        return None
    eps = float(np.median(np.square(np.vecdot(centred, centred)[fits] / along[fits]) - variance[fits]))
    return eps if eps > 0 else None


def _without_bias(which: str, linear: Linear, x: Array) -> Iterator[Cause]:
    if linear.bias is not None:
        yield f"the bias of {which} is missing", Linear(linear.weight, None)(x)
    if linear.weight.shape[0] == linear.weight.shape[1]:
        yield f"the weight of {which} is transposed", Linear(linear.weight.T, linear.bias)(x)


def _mlp_input(at: Setting, _: Array) -> Iterator[Cause]:
    own = at.own
    if "attention_output" in own:
        between = own["layer_input"] + own["attention_output"]
        told = "the MLP follows the attention, where Phi's block is parallel: it reads "
        yield told + "the norm of stream + attention", norm_of(at)(between)
        yield told + "stream + attention", between
        yield told + "the attention's output", own["attention_output"]
    yield "the MLP reads the stream and not its norm", own["layer_input"]


def _activation(at: Setting, _: Array) -> Iterator[Cause]:
    fc1, x = at.block.mlp.fc1, at.own["mlp_input"]
    before = fc1(x)
    yield "the activation is gelu, with erf, and not gelu_new, with tanh", before * 0.5 * (1 + _erf(before / 2**0.5))
    yield "the activation is relu, not gelu_new", np.maximum(before, 0)
    yield "the activation is relu squared, not gelu_new", np.square(np.maximum(before, 0))
    yield "the activation is silu, not gelu_new", before * _sigmoid(before)
    yield "the activation is quick_gelu, not gelu_new", before * _sigmoid(1.702 * before)
    yield "there is no activation", before
    for reason, without in _without_bias("fc1", fc1, x):
        yield reason, gelu_new(without)
        yield f"{reason}, and the activation is gelu, not gelu_new", without * 0.5 * (1 + _erf(without / 2**0.5))


def _erf(x: Array) -> Array:
    return torch.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def _sigmoid(x: Array) -> Array:
    return (1 + np.tanh(x / 2)) / 2


def _sum(at: Setting, found: Array) -> Iterator[Cause]:
    """Which multiples of its three terms the block's output is."""
    names = ("attention", "MLP", "stream")
    terms = [at.own[name] for name in ("attention_output", "mlp_output", "layer_input")]
    matrix = np.stack([term.ravel() for term in terms], axis=1).astype(np.float64)  # [entries terms]
    factors, *_ = np.linalg.lstsq(matrix, found.ravel().astype(np.float64), rcond=None)
    whole = np.where(np.abs(factors - np.round(factors)) < 1e-3, np.round(factors), factors)
    sum_ = sum(factor * term for factor, term in zip(whole, terms, strict=True))
    told = [f"{factor:.4g} × {name}" for factor, name in zip(whole, names, strict=True) if factor not in (0, 1)]
    left_out = [name for factor, name in zip(whole, names, strict=True) if factor == 0]
    words = [f"{' and '.join(left_out)} left out" if left_out else "", f"with {', '.join(told)}" if told else ""]
    yield f"the block's sum is another: {', '.join(filter(None, words))}", np.asarray(sum_, found.dtype)


def _lm_head(at: Setting, _: Array) -> Iterator[Cause]:
    head, x = at.phi.lm_head, at.own["final_norm_output"]
    yield "the bias of lm_head is missing", Linear(head.weight, None)(x)
    yield "the head's matrix is the embedding's", Linear(at.phi.embed_tokens, head.bias)(x)


_CAUSES: dict[str, Causes] = {
    **ATTENTION_CAUSES,
    "attention_norm_output": _norm,
    "mlp_norm_output": _norm,
    "final_norm_output": _norm,
    "attention_output": lambda at, _: _without_bias(
        "dense",
        at.block.self_attn.o_proj,
        at.own["attention_premix"].reshape(*at.own["attention_premix"].shape[:2], -1),
    ),
    "mlp_input": _mlp_input,
    "mlp_activation": _activation,
    "mlp_output": lambda at, _: _without_bias("fc2", at.block.mlp.down_proj, at.own["mlp_neurons"]),
    "layer_output": _sum,
    "lm_head_output": _lm_head,
}


def causes(name: str, at: Setting, found: Array) -> Iterator[Cause]:
    """What may be the reason for a value to part, likeliest first."""
    if name in _CAUSES:
        yield from _CAUSES[name](at, found)
    expected = made(name, at)
    if not found.any() and expected.any():
        yield "it is zero throughout", np.zeros_like(found)
    if found.shape == expected.shape and name != "attention_scores":
        factor = float(np.vdot(expected, found) / max(float(np.vdot(expected, expected)), 1e-300))
        yield f"it is {factor:.4g} times what it should be", factor * expected
        if found.ndim > 2:
            yield "it is shifted by a position", np.roll(expected, 1, axis=-2)


def overflow(name: str, at: Setting, dtype: str, largest: float) -> str:
    """Why a value is not finite: it, or for scores the product before it is scaled, is beyond the dtype's range."""
    reached = np.abs(made(name, at)[np.isfinite(made(name, at))]).max(initial=0)
    told = "it overflows"
    if name == "attention_scores":
        attention = at.block.self_attn
        reached = np.abs(attention.score(at.own["attention_queries"], at.own["attention_keys"])).max()
        if reached < largest:
            reached, told = reached / attention.scaling, "the product of query and key overflows before it is scaled"
    if reached < largest:
        return "it is not finite"
    return f"{told}: it reaches {reached:.2g}, and {dtype} ends at {largest:.2g}. Load it in bfloat16 or under sdpa"
