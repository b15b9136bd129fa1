"""GPT-2's notes: learned positions, one projection for three, weights stored the other way round, and a tied head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Position is added once, at the entrance",
    figures={
        "rows": "positions that have a learned vector",
        "moved": "change of block 0's queries, over all positions, when those vectors are left out",
    },
)
def positions_added_once(model: StandardizedTransformer) -> dict[str, Any]:
    """GPT-2 learns a vector for each of its {rows} positions and adds it to the token's. `token_embeddings` is before
    that sum, `layers[0].layer_input` after it, and the difference is `wpe` bit for bit. Nothing turns inside
    attention: queries are what the projection gives. Past the last row there is no position to be had."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        embedded = model.token_embeddings
        entering = model.layers[0].layer_input
        queries = model.layers[0].self_attn.attention_queries

    positions = model.transformer.wpe.weight[: embedded.shape[1]]
    assert torch.equal(embedded + positions, entering)

    with model.trace([[5, 9, 33, 2, 61, 17]]):
        model.layers[0].layer_input = embedded
        without = model.layers[0].self_attn.attention_queries
    moved = float((queries - without).abs().max())
    assert moved > 0
    return {"rows": model.config.n_positions, "moved": moved}


@note(
    "Queries, keys and values come of one projection",
    figures={"columns": "columns of `c_attn`", "heads": "heads"},
)
def fused_projection(model: StandardizedTransformer) -> dict[str, Any]:
    """`c_attn` computes all three at once: {columns} numbers a position, first every query, then every key, then
    every value. There is no `q_proj` to hook, and none is needed, since `attention_queries`, `attention_keys` and
    `attention_values` are its thirds cut into {heads} heads, bit for bit."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        fused = attention.c_attn.output
        served = attention.attention_queries, attention.attention_keys, attention.attention_values

    for third, value in zip(fused.chunk(3, dim=-1), served, strict=True):
        heads = third.unflatten(-1, (model.num_heads, model.head_dim)).transpose(1, 2)
        assert torch.equal(heads, value)
    return {"columns": fused.shape[-1], "heads": model.num_heads}


@note(
    "The head is the embedding",
    figures={"rows": "rows of the one matrix", "error": "largest error of logits computed with the embedding"},
)
def tied_head(model: StandardizedTransformer) -> dict[str, Any]:
    """`lm_head.weight` and `wte.weight` are one tensor, not two equal ones: {rows} rows that read tokens in and write
    them out. A logit is the final norm's output times the token's own embedding, without a bias. Editing an embedding
    edits the head with it."""
    embedding = model.embed_tokens.weight
    if model.lm_head.weight is not embedding:
        raise DoesNotApply("the head of this checkpoint is a matrix of its own.")
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        normed = model.final_norm_output
        logits = model.logits
    error = float((normed @ embedding.T - logits).abs().max())
    assert error < 1e-2 * float(logits.std())
    return {"rows": len(embedding), "error": error}


@note(
    "Weights lie the other way round",
    figures={
        "shape": "shape of `c_fc.weight`",
        "error": "largest error of input @ weight + bias",
    },
)
def transposed_weights(model: StandardizedTransformer) -> dict[str, Any]:
    """GPT-2's projections are `Conv1D`: they keep a weight as [in, out] ({shape} here), where a linear layer keeps
    [out, in]. Written out it is `input @ weight + bias`, with no transpose. Whoever decomposes weights has to mind
    this; the rows of `c_proj` in the MLP are what its neurons write, and in a Llama they would be the columns."""
    layer = model.layers[0]
    first = layer.mlp.c_fc.module
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        entering = layer.mlp_input
        leaving = layer.mlp.c_fc.output
    error = float((entering @ first.weight + first.bias - leaving).abs().max())
    assert tuple(first.weight.shape) == (model.hidden_size, model.intermediate_size)
    assert error < 1e-2 * float(leaving.std())
    return {"shape": str(list(first.weight.shape)), "error": error}


@note(
    "Attention's output leads the sum",
    figures={"exact": "blocks that add up bit for bit, in GPT-2's order"},
)
def sum_order(model: StandardizedTransformer) -> dict[str, Any]:
    """A block adds twice, each time with the newcomer and the stream: attention plus stream makes `layer_mid`, that
    plus the MLP leaves the block. Two terms can be swapped for free, three cannot be regrouped. In this order
    {exact} of {exact} blocks are exact."""
    exact = 0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            stream = layer.layer_input
            middle = layer.self_attn.attention_output + stream
            assert torch.equal(middle, layer.layer_mid)
            assert torch.equal(middle + layer.mlp.mlp_output, layer.layer_output)
            exact += 1
    return {"exact": exact}
