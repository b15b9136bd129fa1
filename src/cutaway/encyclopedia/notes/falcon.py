"""Falcon's notes: one key head for all, parallel blocks, and an attention without an interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "All query heads share one key head",
    figures={
        "queries": "query heads",
        "keys": "key heads",
        "kept": "numbers that a cache keeps of a token in a layer",
        "full": "what it would keep with a key head each",
    },
)
def one_key_head(model: StandardizedTransformer) -> dict[str, Any]:
    """There are {queries} heads of queries and {keys} of keys and values, which all of them read. `W_K` has {keys} head
    where `W_Q` has {queries}, and a layer's cache keeps {kept} numbers of a token in the place of {full}."""
    if model.num_kv_heads != 1:
        raise DoesNotApply("this checkpoint has a key head for each group of heads.")
    attention = model.layers[0].self_attn
    ids = torch.tensor([[5, 9, 33, 2, 61, 17]], device=model.device)
    with torch.no_grad():
        layer = model.hf(ids, use_cache=True).past_key_values.layers[0]
    kept = layer.keys[0, :, 0].numel() + layer.values[0, :, 0].numel()
    assert attention.W_K.shape[0] == attention.W_V.shape[0] == 1
    assert attention.W_Q.shape[0] == model.num_heads
    assert kept == 2 * model.head_dim
    full = 2 * model.num_heads * model.head_dim
    return {"queries": model.num_heads, "keys": model.num_kv_heads, "kept": kept, "full": full}


@note(
    "The MLP comes first in the sum",
    figures={
        "exact": "blocks that add up bit for bit as (MLP + attention) + stream",
        "gap": "largest error with the stream first",
    },
)
def sum_order(model: StandardizedTransformer) -> dict[str, Any]:
    """What the attention returns is added to what the MLP returned, in place, and that to the stream: in that order
    {exact} of {exact} blocks are exact, and with the stream first they are off by up to {gap}. `mlp_output` is what the
    MLP returned before the attention was added into the same tensor."""
    if not model.config.parallel_attn:
        raise DoesNotApply("this checkpoint's blocks are sequential.")
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
    assert gap > 0
    return {"exact": exact, "gap": gap}


@note(
    "Attention and MLP read the same, side by side",
    figures={
        "norms": "norms of a block",
        "here": "change of `mlp_input` when the block's attention is silenced",
    },
)
def side_by_side(model: StandardizedTransformer) -> dict[str, Any]:
    """The block is parallel: attention and MLP read one stream, through {norms} norm here and through one each in the
    40B. Silencing the attention leaves its block's `mlp_input` as it was, bit for bit: {here}."""
    if not model.config.parallel_attn:
        raise DoesNotApply("this checkpoint's blocks are sequential.")
    ids, path = [[5, 9, 33, 2, 61, 17]], "layers.0.mlp_input"
    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.self_attn.attention_output": torch.zeros_like}):
        after = model.read(ids, path)[path]
    norms = sum("Norm" in type(child).__name__ for child in model.layers[0].module.children())
    assert torch.equal(before, after)
    return {"norms": norms, "here": float((after - before).abs().max())}


@note(
    "What the attention sees can be read under one load alone",
    figures={
        "eager": "values inside attention under eager",
        "sdpa": "the same under sdpa",
        "gained": "what eager gains",
    },
)
def eager_to_look_inside(model: StandardizedTransformer) -> dict[str, Any]:
    """Falcon computes its attention in its own module, and calls no function that could be looked into. Under sdpa that
    is one call of a kernel, with {sdpa} of the values inside; under eager it takes a softmax, and {gained} are there
    too. `support()` says which of them this load has."""
    found: dict[str, list[str]] = {}
    for attention in ("eager", "sdpa"):
        config = model.config.from_dict(model.config.to_dict())
        rows = type(model)(config, attn_implementation=attention, dispatch=False).support()
        found[attention] = [row.value for row in rows if row.available and row.host == "attention"]
    gained = [value for value in found["eager"] if value not in found["sdpa"]]
    assert gained == ["attention_scores", "attention_probabilities"]
    told = " and ".join(f"`{value}`" for value in gained)
    return {"eager": len(found["eager"]), "sdpa": len(found["sdpa"]), "gained": told}


@note(
    "Queries, keys and values lie together by key head",
    figures={
        "columns": "numbers that `query_key_value` returns for a token",
        "error": "largest error of values made with `W_V`",
        "wrong": "the same with the last third cut off, as GPT-2's values would be",
    },
)
def fused_by_group(model: StandardizedTransformer) -> dict[str, Any]:
    """One matrix makes {columns} numbers: for each key head the queries that share it, then its key, then its value.
    `W_V` is that part of it: the normed stream times it is the value, off by {error}. The last third, where GPT-2 has
    its values, is something else, off by up to {wrong}."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        normed = model.layers[0].attention_norm_output
        fused = model.layers[0].self_attn.query_key_value.output

    by_group = fused.unflatten(-1, (model.num_kv_heads, -1, model.head_dim))
    value = by_group[..., -1, :]
    made = torch.einsum("bsm,hmd->bshd", normed, model.layers[0].self_attn.W_V)
    third = fused.chunk(3, dim=-1)[2][..., : model.num_kv_heads * model.head_dim].unflatten(
        -1, (model.num_kv_heads, -1)
    )
    error, wrong = (float((one - value).abs().max()) for one in (made, third))
    assert error < 1e-4 < wrong
    return {"columns": fused.shape[-1], "error": error, "wrong": wrong}


@note(
    "One name, three wirings",
    figures={
        "parallel": "values of a layer in the 7B's wiring",
        "sequential": "values of a layer in the RW checkpoints'",
        "gained": "what the latter has beside",
        "heads": "key heads of the checkpoints on this page",
    },
    on="published configs",
)
def three_wirings(model: StandardizedTransformer) -> dict[str, Any]:
    """The class holds three architectures. Their key heads number {heads}. The RW checkpoints are sequential: a layer
    has {sequential} values where the 7B's has {parallel}, with {gained} beside, and sees distances by ALiBi and not by
    a rotary."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    opened = {
        checkpoint.short: type(model)(config_of("falcon", checkpoint), dispatch=False)
        for checkpoint in CHECKPOINTS["falcon"]
    }
    names = {
        short: [row.value for row in one.support() if row.available and row.host != "model"]
        for short, one in opened.items()
    }
    gained = [value for value in names["falcon-rw-1b"] if value not in names["falcon-7b"]]
    assert gained == ["layer_mid"]
    assert opened["falcon-rw-1b"].config.alibi
    assert not opened["falcon-7b"].config.alibi
    return {
        "parallel": len(names["falcon-7b"]),
        "sequential": len(names["falcon-rw-1b"]),
        "gained": f"`{gained[0]}`",
        "heads": ", ".join(f"{one.num_kv_heads} ({short})" for short, one in opened.items()),
    }
