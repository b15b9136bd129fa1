"""Gemma 2's notes: norms on both sides of each sublayer, soft caps, and every other layer a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "A sublayer is normed on its way out, too",
    figures={
        "norms": "norms of a block",
        "exact": "blocks that add up bit for bit with what the norms behind the sublayers give",
        "gap": "largest error with what the sublayers return",
    },
)
def sandwich(model: StandardizedTransformer) -> dict[str, Any]:
    """A block has {norms} norms: one before and one behind each sublayer. What the stream gains is what the norm behind
    gives, so that is `attention_output` and `mlp_output`; with them {exact} of {exact} blocks add up bit for bit. With
    what `o_proj` and `down_proj` return the sum is off by up to {gap}."""
    exact, gap = 0, 0.0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            stream = layer.layer_input
            returned = layer.self_attn.o_proj.output
            attention = layer.self_attn.attention_output
            middle = layer.layer_mid
            mlp = layer.mlp.mlp_output
            assert torch.equal(stream + attention, middle)
            assert torch.equal(middle + mlp, layer.layer_output)
            gap = max(gap, float((stream + returned - middle).abs().max()))
            exact += 1
    norms = sum("norm" in name for name, _ in model.layers[0].module.named_children())
    assert norms == 4
    assert gap > 0
    return {"norms": norms, "exact": exact, "gap": gap}


@note(
    "What a sublayer writes has a length of its own",
    figures={
        "before": "factor by which the output projection's result grows",
        "after": "factor by which `attention_output` grows",
    },
)
def length_is_the_norms(model: StandardizedTransformer) -> dict[str, Any]:
    """Make the attention's heads ten times as long, and `o_proj` returns {before} times as much; but the stream gains
    {after} times what it did. How much a sublayer writes is told by the weight behind it, and not by what it found."""
    ids, path = [[5, 9, 33, 2, 61, 17]], "layers.0.self_attn.attention_output"
    inner = "layers.0.self_attn.o_proj.output"
    before = model.read(ids, path, inner)
    with model.hooks({"layers.0.self_attn.attention_premix": lambda value: value * 10}):
        after = model.read(ids, path, inner)
    grown = {name: float(after[name].norm() / before[name].norm()) for name in (inner, path)}
    assert abs(grown[inner] - 10) < 1e-3
    assert abs(grown[path] - 1) < 1e-3
    return {"before": f"{grown[inner]:.2f}", "after": f"{grown[path]:.2f}"}


@note(
    "A norm multiplies by one more than its weight",
    figures={
        "error": "largest error of the normed stream rebuilt with 1 + weight",
        "wrong": "largest error with the weight alone",
    },
)
def one_plus_weight(model: StandardizedTransformer) -> dict[str, Any]:
    """The weight that is stored is what is added to one. Rebuilt with 1 + weight the normed stream is off by at most
    {error}; with the weight alone, as Llama's norm has it, by {wrong}. Folding a norm into the next matrix has to mind
    it."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        stream = model.layers[0].layer_input.float()
        normed = model.layers[0].attention_norm_output.float()

    weight = model.layers[0].input_layernorm.weight.float()
    unit = stream / (stream.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt()
    error = float((unit * (1 + weight) - normed).abs().max())
    wrong = float((unit * weight - normed).abs().max())
    assert error < 1e-2 * float(normed.abs().max())
    assert wrong > 10 * error
    return {"error": error, "wrong": wrong}


@note(
    "Scores are capped by a tanh",
    figures={
        "cap": "the cap",
        "largest": "largest score in size with queries a hundred times as long",
        "without": "what the largest would be without the cap",
    },
)
def capped_scores(model: StandardizedTransformer) -> dict[str, Any]:
    """A score is {cap} times the tanh of the product over {cap}: however long queries get, none leaves that range. With
    queries a hundred times as long the largest is {largest} where it would be {without}. A fused kernel has no such
    tanh, which is why this family has no sdpa."""
    cap = model.config.attn_logit_softcapping
    if cap is None:
        raise DoesNotApply("this checkpoint sets no `attn_logit_softcapping`.")
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        attention.attention_queries[:] *= 100
        queries, keys = attention.attention_queries.float(), attention.attention_keys.float()
        scores = attention.attention_scores

    keys = keys.repeat_interleave(model.num_heads // model.num_kv_heads, dim=1)
    products = queries @ keys.transpose(-1, -2) * model.config.query_pre_attn_scalar**-0.5
    seen = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    seen = seen.triu(1 - (model.config.sliding_window or 8))
    largest, without = (float(value[..., seen].abs().max()) for value in (scores, products))
    torch.testing.assert_close(scores[..., seen], (cap * (products / cap).tanh())[..., seen], rtol=1e-3, atol=1e-3)
    assert largest <= cap < without
    return {"cap": cap, "largest": largest, "without": without}


@note(
    "Logits are capped, too, and keep their order",
    figures={
        "cap": "the cap",
        "same": "positions where the likeliest token is the same before and after",
        "all": "positions",
        "sure": "probability of the likeliest token at the last position before the cap, and after",
    },
)
def capped_logits(model: StandardizedTransformer) -> dict[str, Any]:
    """`lm_head_output` is what the head returns, and `logits` what a tanh makes of it, within {cap}. The order of
    tokens stays: the likeliest is the same at {same} of {all} positions. How sure the model is does not: {sure}. A lens
    or a direct effect measured before the cap is on another scale than the logits."""
    cap = model.config.final_logit_softcapping
    if cap is None:
        raise DoesNotApply("this checkpoint sets no `final_logit_softcapping`.")
    values = model.read([[5, 9, 33, 2, 61, 17]], "lm_head_output", "logits")
    before, after = values["lm_head_output"][0].float(), values["logits"][0].float()
    same = int((before.argmax(-1) == after.argmax(-1)).sum())
    torch.testing.assert_close(after, cap * (before / cap).tanh(), rtol=1e-3, atol=1e-3)
    assert float(after.abs().max()) <= cap
    assert same == len(before)
    sure = [float(one[-1].softmax(-1).max()) for one in (before, after)]
    return {"cap": cap, "same": same, "all": len(before), "sure": f"{sure[0]:.3f} and {sure[1]:.3f}"}


@note(
    "Every other layer sees a window",
    figures={"seen": "keys that the last query sees, layer by layer"},
)
def alternating_windows(model: StandardizedTransformer) -> dict[str, Any]:
    """Layers take turns: one sees a window, the next all. The last query of the first layers here sees {seen} keys.
    What moves a pattern at a distance moves it in every other layer alone."""
    window = model.config.sliding_window
    length = window + 5
    ids = [[5 + i % 80 for i in range(length)]]
    paths = [f"layers.{layer}.self_attn.attention_probabilities" for layer in range(min(4, model.num_layers))]
    patterns = model.read(ids, paths)
    seen = [int((patterns[path][0, :, -1] > 0).any(0).sum()) for path in paths]
    kinds = model.config.layer_types[: len(seen)]
    assert seen == [window if kind == "sliding_attention" else length for kind in kinds]
    assert {"sliding_attention", "full_attention"} == set(kinds)
    return {"seen": ", ".join(map(str, seen))}


@note(
    "An embedding enters enlarged by the root of the width",
    figures={"factor": "what rows of the matrix are multiplied by", "width": "width of the stream"},
)
def scaled_embedding(model: StandardizedTransformer) -> dict[str, Any]:
    """`token_embeddings` are the matrix's rows times {factor}, the root of {width}: the embedding module multiplies by
    itself. The head reads the same matrix as it is, so a token is written in larger than it is read out."""
    ids = torch.tensor([[5, 9, 33, 2, 61, 17]], device=model.device)
    embedded = model.read(ids, "token_embeddings")["token_embeddings"].float()
    rows = model.embed_tokens.weight[ids].float()
    factor = float((embedded * rows).sum() / rows.square().sum())
    torch.testing.assert_close(embedded, rows * factor, rtol=1e-3, atol=1e-3)
    assert abs(factor - model.hidden_size**0.5) < 0.01 * factor
    assert model.lm_head.weight is model.embed_tokens.weight
    return {"factor": f"{factor:.3f}", "width": model.hidden_size}
