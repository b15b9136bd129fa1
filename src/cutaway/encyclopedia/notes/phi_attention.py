"""Phi's attention: a rotary on part of each head, an option nobody uses, and one softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import Reported, note
from cutaway.encyclopedia.notes.drawings import rotary_dimensions

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Only part of each head turns with position",
    figures={
        "rotary": "dimensions of a head that are rotated",
        "head": "dimensions of a head",
        "moved": "largest change by the rotary among those",
        "tail": "largest change among the others",
    },
    reported=(
        Reported("rotary", "32", "phi-1, phi-1.5 and phi-2 alike"),
        Reported("head", "64, 64 and 80", "phi-1, phi-1.5 and phi-2"),
    ),
    picture=rotary_dimensions,
)
def partial_rotary(model: StandardizedTransformer) -> dict[str, Any]:
    """`attention_queries` are served after the rotary. Before it they are what `q_proj` returns, cut into heads, and
    `.source` reads them there. Put side by side they show that the rotary touches the first {rotary} dimensions of
    each head and hands the rest on as they are, bit for bit, so those know nothing of position. At position 0
    nothing turns at all."""
    with model.trace("def area(width, height):\n    return width * height"):
        attention = model.layers[0].self_attn
        projected = attention.source.self_q_proj_0.output
        queries = attention.attention_queries

    before = projected.unflatten(-1, (model.num_heads, model.head_dim)).transpose(1, 2)
    rotary = int(model.head_dim * model.config.rope_parameters["partial_rotary_factor"])
    change = (queries - before).abs()
    assert change[..., rotary:].max() == 0
    assert change[:, :, 0].max() == 0
    assert change[:, :, 1:, :rotary].max() > 0
    return {
        "rotary": rotary,
        "head": model.head_dim,
        "moved": float(change[..., :rotary].max()),
        "tail": float(change[..., rotary:].max()),
    }


@note(
    "A dimension turns with the one half a rotary away",
    figures={
        "half": "distance between the two dimensions of a pair",
        "error": "largest error of queries rebuilt that way",
        "neighbours": "largest error when neighbours are paired instead",
        "slowest": "radians a position, by which the last pair turns",
    },
)
def pairs_half_apart(model: StandardizedTransformer) -> dict[str, Any]:
    """Texts often pair dimension 2i with 2i+1. Phi pairs i with i+{half}, the first half of the rotary part with the
    second. Rotating the projected queries by hand that way gives `attention_queries` back, while pairing neighbours
    misses by up to {neighbours}. Pair 0 is the fastest, one radian a position; the last takes
    {slowest} radians, nearly standing still."""
    with model.trace("x = [1, 2, 3]\ny = [4, 5, 6]\nz = x +"):
        attention = model.layers[0].self_attn
        projected = attention.source.self_q_proj_0.output
        queries = attention.attention_queries.float()

    heads = projected.float().unflatten(-1, (model.num_heads, model.head_dim)).transpose(1, 2)
    rope = model.config.rope_parameters
    half = int(model.head_dim * rope["partial_rotary_factor"]) // 2
    speed = rope["rope_theta"] ** (-torch.arange(half, device=heads.device) / half)
    angle = torch.arange(heads.shape[2], device=heads.device)[:, None] * speed  # [seq half]

    def rotate(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()

    apart = torch.cat(rotate(heads[..., :half], heads[..., half : 2 * half]), dim=-1)
    beside = torch.stack(rotate(heads[..., 0 : 2 * half : 2], heads[..., 1 : 2 * half : 2]), dim=-1).flatten(-2)
    error = float((apart - queries[..., : 2 * half]).abs().max())
    neighbours = float((beside - queries[..., : 2 * half]).abs().max())
    assert error < 0.05 * neighbours
    return {"half": half, "error": error, "neighbours": neighbours, "slowest": float(speed[-1])}


@note(
    "Grouped heads and normed queries are options nobody took",
    figures={
        "kv_heads": "key heads, against query heads",
        "unrotated": "largest error of normed queries, position 0, with the option on",
    },
    reported=(Reported("kv_heads", "32 of 32", "phi-1, phi-1.5 and phi-2"),),
)
def query_key_norm(model: StandardizedTransformer) -> dict[str, Any]:
    """Every query head has a key head of its own here ({kv_heads}), and `qk_layernorm` is false, in {model} as on all
    three published checkpoints. Yet the code is there. Switched on in a small random Phi, it puts a LayerNorm over each
    head of queries and keys before the rotary, and Cutaway's `attention_queries` follow."""
    assert model.num_kv_heads == model.num_heads
    assert not model.config.qk_layernorm

    small = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = model.config.from_dict({**small, "qk_layernorm": True, "initializer_range": 0.3})
    normed = type(model)(config)
    with normed.trace([3, 1, 4, 1, 5]):
        attention = normed.layers[0].self_attn
        heads = attention.q_proj.output.unflatten(-1, (4, 8)).transpose(1, 2)
        queries = attention.attention_queries

    expected = normed.hf.model.layers[0].self_attn.q_layernorm(heads)
    error = float((queries - expected)[:, :, 0].abs().max())  # at position 0 the rotary does nothing
    assert error < 1e-5 < float((queries - heads)[:, :, 0].abs().max())
    return {"kv_heads": f"{model.num_kv_heads} of {model.num_heads}", "unrotated": error}


@note(
    "One scale, one softmax, and two kernels that agree",
    figures={
        "scale": "scale of the scores",
        "pattern": "largest difference of `softmax(attention_scores)` from `attention_probabilities`",
        "kernels": "largest difference of the attention's outputs, eager against sdpa",
    },
)
def one_softmax(model: StandardizedTransformer) -> dict[str, Any]:
    """Scores are queries times keys over the square root of the head's width, masked, and nothing else: no soft cap, no
    sink, no sliding window. Their softmax is the pattern. The readable kernel and the fast one therefore
    compute the same attention, to within {kernels} here."""
    prompt = "while queue:\n    node = queue.pop()\n    for other in node."
    with model.trace(prompt):
        attention = model.layers[0].self_attn
        queries, keys = attention.attention_queries, attention.attention_keys
        scores = attention.attention_scores
        probabilities = attention.attention_probabilities
    outputs, loaded = {}, str(model.config._attn_implementation)
    try:
        for kernel in ("eager", "sdpa"):
            model.hf.set_attn_implementation(kernel)
            outputs[kernel] = model.read(prompt, "layers.0.self_attn.attention_output").popitem()[1]
    finally:
        model.hf.set_attn_implementation(loaded)

    scale = model.head_dim**-0.5
    seen = scores > torch.finfo(scores.dtype).min / 2
    products = (queries.float() @ keys.float().transpose(-1, -2) * scale)[seen]
    assert torch.allclose(products, scores[seen].float(), rtol=1e-2, atol=1e-3)
    pattern = float((scores.float().softmax(-1) - probabilities.float()).abs().max())
    kernels = float((outputs["eager"] - outputs["sdpa"]).abs().max())
    assert pattern < 1e-2
    assert kernels < 1e-2 * float(outputs["sdpa"].abs().max())
    return {"scale": scale, "pattern": pattern, "kernels": kernels}
