"""Qwen3's notes: a norm over each head's queries and keys, and heads of a width of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Each head's query is normed before it turns",
    figures={
        "norms": "norms in an attention",
        "error": "largest error of queries rebuilt as norm of the projection, head by head",
    },
)
def normed_heads(model: StandardizedTransformer) -> dict[str, Any]:
    """An attention holds {norms} norms, one for queries and one for keys, each as wide as a head and shared by all
    heads of the layer. `queries_before_rotary` are what `q_proj` gives, cut into heads and normed: rebuilt so they are
    off by at most {error}."""
    with model.trace([[5, 9, 33, 2, 61, 17, 40, 8]]):
        attention = model.layers[0].self_attn
        projected = attention.q_proj.output
        queries = attention.queries_before_rotary

    heads = projected.unflatten(-1, (model.num_heads, model.head_dim)).float()
    root = (heads.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt()
    rebuilt = (heads / root * attention.q_norm.weight.float()).transpose(1, 2)
    error = float((rebuilt - queries.float()).abs().max())
    assert attention.q_norm.weight.shape == attention.k_norm.weight.shape == (model.head_dim,)
    assert error < 1e-2 * float(queries.abs().max())
    return {"norms": 2, "error": error}


@note(
    "A score cannot grow with the stream",
    figures={
        "largest": "largest score in size, of all layers and heads",
        "bound": "largest score that the norms' weights allow",
        "moved": "change of the scores when a normed stream is made ten times as long",
    },
)
def bounded_scores(model: StandardizedTransformer) -> dict[str, Any]:
    """After its norm a query is no longer than the norm's weights let it, and the rotary turns without stretching. So
    no score exceeds {bound} in size here, whatever the stream holds; the largest is {largest}. Make the normed stream
    ten times as long, and scores move by {moved} alone: what remains is the norm's epsilon."""
    ids = [[5, 9, 33, 2, 61, 17, 40, 8]]
    largest = bound = 0.0
    for path, scores in model.read(ids, "attention_scores").items():
        attention = model.layers[int(path.split(".")[1])].self_attn
        seen = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
        largest = max(largest, float(scores[..., seen].abs().max()))
        widest = float(attention.q_norm.weight.abs().max() * attention.k_norm.weight.abs().max())
        bound = max(bound, widest * model.head_dim**0.5)
    assert largest <= bound * 1.001

    path, seen = "layers.0.self_attn.attention_scores", torch.ones(8, 8, dtype=torch.bool).tril()
    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.attention_norm_output": lambda value: value * 10}):
        after = model.read(ids, path)[path]
    moved = float((after - before)[..., seen].abs().max())
    assert moved < 0.01 * largest
    return {"largest": largest, "bound": bound, "moved": moved}


@note(
    "Values are not normed",
    figures={"values": "factor by which values grow with the stream", "queries": "the same of queries"},
)
def values_grow(model: StandardizedTransformer) -> dict[str, Any]:
    """Only queries and keys go through a norm. Twice the normed stream gives values {values} times as long, and queries
    {queries} times: what is taken home grows with the stream, and where it is taken from does not."""
    ids, factors = [[5, 9, 33, 2, 61, 17, 40, 8]], []
    for name in ("attention_values", "queries_before_rotary"):
        path = f"layers.0.self_attn.{name}"
        before = model.read(ids, path)[path]
        with model.hooks({"layers.0.attention_norm_output": lambda value: value * 2}):
            after = model.read(ids, path)[path]
        factors.append(float(after.norm() / before.norm()))
    assert abs(factors[0] - 2) < 1e-3
    assert abs(factors[1] - 1) < 1e-3
    return {"values": f"{factors[0]:.3f}", "queries": f"{factors[1]:.3f}"}


@note(
    "Heads are wider than the stream allows for",
    figures={
        "together": "numbers that all heads' queries have together",
        "stream": "numbers of the stream",
        "o_proj": "shape of `W_O`, by head",
    },
)
def wide_heads(model: StandardizedTransformer) -> dict[str, Any]:
    """`head_dim` is a setting of its own. All queries together have {together} numbers where the stream has {stream},
    and `W_O` is {o_proj}. Dividing the stream's width by the number of heads, as one may elsewhere, gives another
    width than the heads have."""
    together = model.num_heads * model.head_dim
    with model.trace([[5, 9, 33]]):
        premix = model.layers[0].self_attn.attention_premix

    assert premix.shape[-2:] == (model.num_heads, model.head_dim)
    assert together != model.hidden_size
    shape = " × ".join(map(str, model.layers[0].self_attn.W_O.shape))
    return {"together": together, "stream": model.hidden_size, "o_proj": shape}


@note(
    "The norms stand where Qwen2's biases were",
    figures={
        "biases": "biases in a block",
        "zero": "largest score in size with nothing in the normed stream",
    },
)
def no_biases(model: StandardizedTransformer) -> dict[str, Any]:
    """A block has {biases} biases. Give an attention a normed stream of zeros and all its scores are {zero}: where
    Qwen2 would still prefer distances, this one prefers nothing."""
    attention, mlp = model.layers[0].self_attn, model.layers[0].mlp
    biases = [attention.b_Q, attention.b_K, attention.b_V, attention.b_O, mlp.b_gate, mlp.b_in, mlp.b_out]
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        model.layers[0].attention_norm_output[:] = 0
        scores = attention.attention_scores

    seen = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    zero = float(scores[..., seen].abs().max())
    assert all(bias is None for bias in biases)
    assert zero == 0
    return {"biases": sum(bias is not None for bias in biases), "zero": zero}


@note(
    "A norm's weight is a gain of each dimension, for all heads at once",
    figures={"heads": "query heads whose scores change", "all": "query heads of the layer"},
)
def one_gain_for_all(model: StandardizedTransformer) -> dict[str, Any]:
    """Scale one dimension after the queries' norm and {heads} of {all} heads score otherwise: the norm's weight belongs
    to the layer, and one number of it is a gain in each head."""
    ids, path = [[5, 9, 33, 2, 61, 17]], "layers.0.self_attn.attention_scores"

    def scaled(queries: torch.Tensor) -> torch.Tensor:
        gain = torch.ones_like(queries[0, 0, 0])
        gain[0] = 2
        return queries * gain

    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.self_attn.queries_before_rotary": scaled}):
        after = model.read(ids, path)[path]
    changed = int((after != before).flatten(2).any(-1).sum())
    assert changed == model.num_heads
    return {"heads": changed, "all": model.num_heads}
