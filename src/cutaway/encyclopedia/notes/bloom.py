"""Bloom's notes: distances in the scores, a normed embedding, and sublayers that add to the stream themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Each head has a slope of its own",
    figures={
        "steepest": "what a head with the steepest slope adds for each place",
        "flattest": "the same of the flattest",
        "heads": "heads",
        "error": "largest error of the slopes read off the scores",
    },
)
def slopes(model: StandardizedTransformer) -> dict[str, Any]:
    """There are no positions in the stream and no rotary. With nothing in a block's normed stream, what is left of the
    scores of {heads} heads, beside the products of the biases, rises with the key's place by {steepest} a place in one
    head and by {flattest} in another. These slopes are fixed numbers, a power of two for each head, off here by
    {error}."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        model.layers[0].attention_norm_output[:] = 0
        scores = model.layers[0].self_attn.attention_scores.double()

    last = scores[0, :, -1]
    found = (last[:, 1:] - last[:, :-1]).mean(-1)
    ends = found.max(), found.min()
    error = float(((last[:, 1:] - last[:, :-1]) - found[:, None]).abs().max())
    assert error < 1e-3
    assert float(ends[1]) > 0
    powers = torch.log2(found)
    assert float((powers * 2 - (powers * 2).round()).abs().max()) < 1e-2
    return {"steepest": float(ends[0]), "flattest": float(ends[1]), "heads": model.num_heads, "error": error}


@note(
    "The same in every layer",
    figures={
        "layers": "layers whose slopes are those of the first, up to rounding",
        "apart": "their largest difference",
    },
)
def same_slopes_everywhere(model: StandardizedTransformer) -> dict[str, Any]:
    """The slopes are computed once for the model and given to each block: those of {layers} layers are the first one's,
    up to {apart}. A head that looks near by its slope does so in every layer; which head it is is its number alone."""
    found = []
    for layer in range(model.num_layers):
        path = f"layers.{layer}.self_attn.attention_scores"
        with model.hooks({f"layers.{layer}.attention_norm_output": torch.zeros_like}):
            last = model.read([[5, 9, 33, 2, 61, 17]], path)[path][0, :, -1].double()
        found.append((last[:, 1:] - last[:, :-1]).mean(-1))
    apart = max(float((one - found[0]).abs().max()) for one in found)
    assert apart < 1e-3
    return {"layers": len(found), "apart": apart}


@note(
    "The embedding is normed before the first block",
    figures={
        "error": "largest error of the first stream as the norm of `token_embeddings`",
        "moved": "change of the first stream when `token_embeddings` are ten times as long",
    },
)
def normed_embedding(model: StandardizedTransformer) -> dict[str, Any]:
    """A norm stands between the embedding and the blocks: `layers[0].layer_input` is the norm of `token_embeddings`,
    off by {error}. Embeddings ten times as long give the same stream, up to {moved}: a length in the embedding is lost
    before anything reads it."""
    ids, path = [[5, 9, 33, 2, 61, 17]], "layers.0.layer_input"
    values = model.read(ids, "token_embeddings", path)
    norm: Any = model.hf.get_submodule("transformer.word_embeddings_layernorm")
    error = float((norm(values["token_embeddings"]) - values[path]).abs().max())
    with model.hooks({"token_embeddings": lambda value: value * 10}):
        moved = float((model.read(ids, path)[path] - values[path]).abs().max())
    assert error == 0
    assert moved < 1e-2
    return {"error": error, "moved": moved}


@note(
    "Sublayers add to the stream themselves",
    figures={
        "exact": "blocks in which the attention's module returns stream plus `attention_output`, bit for bit",
        "blocks": "blocks",
    },
)
def sublayers_add(model: StandardizedTransformer) -> dict[str, Any]:
    """The modules `self_attention` and `mlp` are given the stream and return it with their part added. In {exact} of
    {blocks} blocks the attention's module returns `layer_input + attention_output`, bit for bit, so a hook on that
    module sees the stream, and not what it adds. `attention_output` is what `dense` returns."""
    exact = 0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            stream = layer.layer_input
            added = layer.self_attn.attention_output
            returned = layer.self_attn.output[0]
            assert torch.equal(stream + added, returned)
            exact += 1
    return {"exact": exact, "blocks": model.num_layers}


@note(
    "The head reads the matrix that the embedding wrote with",
    figures={
        "shared": "numbers that both share",
        "first": "tokens of the vocabulary whose own logit is the highest when their embedding is read at once",
        "all": "tokens of the vocabulary",
    },
)
def tied_head(model: StandardizedTransformer) -> dict[str, Any]:
    """`lm_head` and `word_embeddings` are one matrix of {shared} numbers. Between writing and reading stand two norms;
    read at once, with no block in between, {first} of {all} tokens name themselves. The blocks have to write over that
    before the model can say anything but what it was given."""
    head, embedding = model.lm_head.weight, model.embed_tokens.weight
    ids = torch.arange(model.vocab_size, device=model.device)[:, None]
    with torch.no_grad():
        logits = model.project_on_vocab(model.read(ids, "layers.0.layer_input")["layers.0.layer_input"])[:, 0]
    first = int((logits.argmax(-1) == ids[:, 0]).sum())
    assert head is embedding
    assert first > model.vocab_size / 2
    return {"shared": f"{head.numel():,}", "first": first, "all": model.vocab_size}


@note(
    "Padding is not counted by the slopes",
    figures={
        "apart": "largest difference of the last scores with and without padding",
        "pads": "padding tokens in front",
    },
)
def padding_and_slopes(model: StandardizedTransformer) -> dict[str, Any]:
    """A key's place is counted from the mask, padding left out. With {pads} padding tokens in front the scores of the
    last query with the real keys are those of the prompt alone, up to {apart}, without any position ids given."""
    ids, pads = [5, 9, 33, 2, 61, 17], 3
    path = "layers.0.self_attn.attention_scores"
    alone = model.read([ids], path)[path][0, :, -1]
    mask = [[0] * pads + [1] * len(ids)]
    padded = model.read([[0] * pads + ids], path, attention_mask=mask)[path][0, :, -1, pads:]
    apart = float((padded - alone).abs().max())
    assert apart < 1e-3
    return {"apart": apart, "pads": pads}
