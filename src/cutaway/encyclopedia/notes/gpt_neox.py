"""GPT-NeoX's and Pythia's notes: side by side with a norm each, one interleaved projection, a quarter of rotary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Side by side, with a norm each",
    figures={
        "blocks": "blocks in which both norms read `layer_input`",
        "apart": "largest difference between what the two norms hand on",
        "here": "change of a block's `mlp_input` when its attention is silenced",
    },
)
def two_norms(model: StandardizedTransformer) -> dict[str, Any]:
    """The block is parallel as Phi's is, but each sublayer has a norm of its own. Both read `layer_input`, in spite
    of the name `post_attention_layernorm`, and hand on different things, up to {apart} apart. Silencing attention
    leaves the MLP's input untouched, bit for bit."""
    if not model.config.use_parallel_residual:
        raise DoesNotApply("this checkpoint sets `use_parallel_residual` to false: its blocks are sequential.")
    ids, blocks, apart = [[5, 9, 33, 2, 61, 17]], 0, 0.0
    with model.trace(ids):
        for layer in model.layers:
            stream = layer.layer_input
            for_attention = layer.attention_norm_output
            for_mlp = layer.mlp_norm_output
            assert torch.equal(layer.input_layernorm.module(stream), for_attention)
            assert torch.equal(layer.post_attention_layernorm.module(stream), for_mlp)
            apart = max(apart, float((for_attention - for_mlp).abs().max()))
            blocks += 1

    path = "layers.0.mlp_input"
    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.self_attn.attention_output": torch.zeros_like}):
        after = model.read(ids, path)[path]
    assert torch.equal(before, after)
    return {"blocks": blocks, "apart": apart, "here": float((after - before).abs().max())}


@note(
    "MLP, attention, stream: in that order",
    figures={
        "exact": "blocks that add up bit for bit as MLP + attention + stream",
        "gap": "largest error when the stream comes first",
    },
)
def sum_order(model: StandardizedTransformer) -> dict[str, Any]:
    """The two sublayers' outputs are added to each other and the stream comes last. In that order {exact} of {exact}
    blocks are exact; with the stream first they are off by up to {gap}."""
    if not model.config.use_parallel_residual:
        raise DoesNotApply("this checkpoint sets `use_parallel_residual` to false: its blocks are sequential.")
    exact, gap = 0, 0.0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            stream = layer.layer_input
            attention = layer.self_attn.attention_output
            mlp = layer.mlp.mlp_output
            output = layer.layer_output
            assert torch.equal(mlp + attention + stream, output)
            gap = max(gap, float((stream + attention + mlp - output).abs().max()))
            exact += 1
    return {"exact": exact, "gap": gap}


@note(
    "Each head's query, key and value lie together",
    figures={
        "columns": "columns of `query_key_value`",
        "block": "columns a head takes, its query, key and value",
        "wrong": "entries of the values that differ if cut into thirds, as GPT-2's would be",
    },
)
def interleaved_projection(model: StandardizedTransformer) -> dict[str, Any]:
    """One projection makes queries, keys and values, {columns} numbers a position. Unlike GPT-2's it is not cut into
    thirds: head 0's query, key and value come first, then head 1's, {block} columns for each head. Cut that way,
    `attention_values` comes out bit for bit. Cut into thirds, {wrong} of its entries are wrong, and nothing
    complains, since the shapes are the same."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        fused = attention.query_key_value.output
        values = attention.attention_values

    by_head = fused.unflatten(-1, (model.num_heads, 3, model.head_dim))
    assert torch.equal(by_head[..., 2, :].transpose(1, 2), values)
    thirds = fused.unflatten(-1, (3, model.num_heads, model.head_dim))
    wrong = float((thirds[..., 2, :, :].transpose(1, 2) != values).float().mean())
    return {"columns": fused.shape[-1], "block": 3 * model.head_dim, "wrong": f"{100 * wrong:.0f}%"}


@note(
    "A quarter of each head turns",
    figures={
        "rotary": "dimensions of a head that are rotated",
        "head": "dimensions of a head",
        "moved": "largest change by the rotary among those",
    },
)
def quarter_rotary(model: StandardizedTransformer) -> dict[str, Any]:
    """Of the {head} dimensions of a head the first {rotary} are rotated, by up to {moved} here. The others reach
    attention just as `query_key_value` made them, bit for bit."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        fused = attention.query_key_value.output
        queries = attention.attention_queries

    projected = fused.unflatten(-1, (model.num_heads, 3, model.head_dim))[..., 0, :].transpose(1, 2)
    rotary = int(model.head_dim * model.config.rope_parameters["partial_rotary_factor"])
    assert torch.equal(projected[..., rotary:], queries[..., rotary:])
    moved = float((projected - queries)[..., :rotary].abs().max())
    assert moved > 0
    return {"rotary": rotary, "head": model.head_dim, "moved": moved}


@note(
    "One switch makes it sequential",
    figures={
        "parallel": "values of a layer with the switch as most checkpoints have it",
        "sequential": "values of a layer with the switch off",
        "gained": "what is gained",
    },
)
def sequential_variant(model: StandardizedTransformer) -> dict[str, Any]:
    """`use_parallel_residual` decides how a block is wired. Off, the same modules run one after the other, a stream
    stands between them, and {gained} exists. The names do not change, but what they mean does: ask `support()`
    before you trust a name from another checkpoint."""
    found = {}
    for parallel in (True, False):
        config = model.config.from_dict({**model.config.to_dict(), "use_parallel_residual": parallel})
        rows = type(model)(config, dispatch=False).support()
        found[parallel] = [row.value for row in rows if row.available and row.host != "model"]
    gained = [value for value in found[False] if value not in found[True]]
    assert gained == ["layer_mid"]
    return {"parallel": len(found[True]), "sequential": len(found[False]), "gained": f"`{gained[0]}`"}
