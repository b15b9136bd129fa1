"""GPT-J's notes: the first parallel block, and a rotary over neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Attention and MLP read the same norm",
    figures={
        "blocks": "blocks in which both are given one tensor",
        "here": "change of `mlp_input` without the attention",
    },
)
def one_norm(model: StandardizedTransformer) -> dict[str, Any]:
    """In {blocks} of {blocks} blocks one norm feeds both sublayers: `attention_norm_output` and `mlp_norm_output` are
    one tensor. Silencing a block's attention leaves its `mlp_input` as it was, bit for bit: {here}. GPT-NeoX, its
    successor, gave each a norm of its own; Phi has one again."""
    ids, blocks = [[5, 9, 33, 2, 61, 17]], 0
    with model.trace(ids):
        for layer in model.layers:
            assert layer.attention_norm_output is layer.mlp_norm_output
            blocks += 1
    path = "layers.0.mlp_input"
    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.self_attn.attention_output": torch.zeros_like}):
        after = model.read(ids, path)[path]
    here = float((after - before).abs().max())
    assert here == 0
    return {"blocks": blocks, "here": here}


@note(
    "Attention, MLP, stream: in that order",
    figures={"exact": "blocks that add up bit for bit so", "gap": "largest error with the stream first"},
)
def sum_order(model: StandardizedTransformer) -> dict[str, Any]:
    """What attention and MLP return is added first, and the stream comes last: so {exact} of {exact} blocks are exact,
    with the stream first they are off by up to {gap}. GPT-NeoX begins with the MLP."""
    exact, gap = 0, 0.0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            stream = layer.layer_input
            attention = layer.self_attn.attention_output
            mlp = layer.mlp.mlp_output
            output = layer.layer_output
            assert torch.equal(attention + mlp + stream, output)
            gap = max(gap, float((stream + attention + mlp - output).abs().max()))
            exact += 1
    assert gap > 0
    return {"exact": exact, "gap": gap}


@note(
    "Pairs are neighbours",
    figures={
        "turned": "dimensions of a head that turn",
        "neighbours": "largest change of a neighbouring pair's length by the rotary",
        "apart": "the same of pairs half of them apart, as Llama's are",
    },
)
def neighbouring_pairs(model: StandardizedTransformer) -> dict[str, Any]:
    """Turning keeps a pair's length. Of the {turned} dimensions that turn here, neighbours keep theirs, up to
    {neighbours}; pairs that lie half of them apart, as in Llama and Phi, change by up to {apart}. The same rotary in
    another arrangement: a query cannot be turned by the other's code."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        plain, turned = attention.queries_before_rotary.float(), attention.attention_queries.float()

    count = model.config.rotary_dim
    plain, turned = plain[..., :count], turned[..., :count]
    neighbours = (turned.unflatten(-1, (-1, 2)).norm(dim=-1) - plain.unflatten(-1, (-1, 2)).norm(dim=-1)).abs().max()
    apart = (turned.unflatten(-1, (2, -1)).norm(dim=-2) - plain.unflatten(-1, (2, -1)).norm(dim=-2)).abs().max()
    assert float(neighbours) < 1e-4 < float(apart)
    return {"turned": count, "neighbours": float(neighbours), "apart": float(apart)}


@note(
    "What does not turn",
    figures={"turned": "dimensions of a head that turn", "head": "dimensions of a head"},
)
def partial_turn(model: StandardizedTransformer) -> dict[str, Any]:
    """`rotary_dim` says how many of a head's dimensions turn, {turned} of {head} here, 64 of 256 in the 6B. The others
    are the same before and after, bit for bit."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        plain, turned = attention.keys_before_rotary, attention.attention_keys

    changed = (plain != turned)[:, :, 1:].flatten(0, 2).any(0)
    count = model.config.rotary_dim
    assert bool(changed[:count].all())
    assert not changed[count:].any()
    return {"turned": count, "head": model.head_dim}


@note(
    "The MLP and the head have biases, the attention has none",
    figures={"with": "matrices with a bias", "without": "matrices without"},
)
def where_biases_are(model: StandardizedTransformer) -> dict[str, Any]:
    """Of a block's matrices and the head, {with} have a bias and {without} have none: those of the attention. The
    head's bias makes some tokens likelier whatever the stream says, and no direction of the stream stands for it."""
    attention, mlp = model.layers[0].self_attn, model.layers[0].mlp
    biases = [attention.b_Q, attention.b_K, attention.b_V, attention.b_O, mlp.b_in, mlp.b_out, model.b_U]
    assert [bias is None for bias in biases] == [True] * 4 + [False] * 3
    with model.trace([[5, 9, 33]]):
        model.final_norm_output[:] = 0
        logits = model.logits
    assert bool((logits[0, 0] == model.b_U).all())
    return {"with": 3, "without": 4}


@note(
    "Scores are made in float32",
    figures={
        "dtype": "the pattern's type in a copy in half precision",
        "error": "its largest error against float32",
        "half": "the error of a product in half precision",
    },
    on="a copy in float16",
)
def float32_scores(model: StandardizedTransformer) -> dict[str, Any]:
    """In a float16 copy the scores that enter the softmax come of a product whose error against float32 is {error} at
    most; a product of the very queries and keys in half precision would err by {half}. The pattern itself is {dtype}
    again."""
    import copy

    half = type(model)(copy.deepcopy(model.hf).half(), check=False)
    half.hf.set_attn_implementation("eager")
    with half.trace([[5, 9, 33, 2, 61, 17]]):
        attention = half.layers[0].self_attn
        queries, keys = attention.attention_queries, attention.attention_keys
        scores = attention.attention_scores
        pattern = attention.attention_probabilities

    seen = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    exact = queries.double() @ keys.double().transpose(-1, -2) * half.head_dim**-0.5
    rough = (queries @ keys.transpose(-1, -2)).double() * half.head_dim**-0.5
    error, by_half = (float((one.double() - exact)[..., seen].abs().max()) for one in (scores, rough))
    assert pattern.dtype == torch.float16
    assert error <= by_half
    return {"dtype": "float16", "error": error, "half": by_half}
