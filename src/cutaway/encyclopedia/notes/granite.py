"""Granite's notes: Llama's block with four numbers that multiply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "The stream gains a part of what a sublayer returns",
    figures={
        "factor": "`residual_multiplier`",
        "exact": "blocks that add up bit for bit with it",
        "gap": "largest error without it",
    },
)
def scaled_residual(model: StandardizedTransformer) -> dict[str, Any]:
    """`attention_output` and `mlp_output` are what the sublayers return, and the stream gains {factor} times that. With
    the factor {exact} of {exact} blocks add up bit for bit; without it they are off by up to {gap}. A decomposition of
    the stream that leaves it out is wrong by a factor of four."""
    factor, exact, gap = model.config.residual_multiplier, 0, 0.0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            stream = layer.layer_input
            attention = layer.self_attn.attention_output
            middle = layer.layer_mid
            mlp = layer.mlp.mlp_output
            output = layer.layer_output
            assert torch.equal(stream + attention * factor, middle)
            assert torch.equal(middle + mlp * factor, output)
            gap = max(gap, float((stream + attention + mlp - output).abs().max()))
            exact += 1
    assert factor != 1
    assert gap > 0
    return {"factor": factor, "exact": exact, "gap": gap}


@note(
    "The embedding enters enlarged",
    figures={"factor": "`embedding_multiplier`", "error": "largest error of the first stream as rows times that"},
)
def enlarged_embedding(model: StandardizedTransformer) -> dict[str, Any]:
    """`token_embeddings` are the rows as the embedding gives them; on their way into the first block the model
    multiplies them by {factor}. So `layers[0].layer_input` is that many times `token_embeddings`, off by {error}:
    unlike in Gemma, where the embedding does so itself."""
    values = model.read([[5, 9, 33, 2, 61, 17]], "token_embeddings", "layers.0.layer_input")
    factor = model.config.embedding_multiplier
    error = float((values["token_embeddings"] * factor - values["layers.0.layer_input"]).abs().max())
    assert factor != 1
    assert error == 0
    return {"factor": factor, "error": error}


@note(
    "Scores have a scale of their own",
    figures={
        "scale": "`attention_multiplier`",
        "usual": "one over the root of a head's width",
        "error": "largest error of scores rebuilt with the former",
    },
)
def scale_of_scores(model: StandardizedTransformer) -> dict[str, Any]:
    """Products of queries and keys are multiplied by {scale}, where one over the root of a head's width would be
    {usual}. Scores rebuilt with it are off by at most {error}. In the 2B it is one over the width itself: scores are
    smaller, and patterns flatter, than a rule of thumb expects."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        queries, keys = attention.attention_queries.float(), attention.attention_keys.float()
        scores = attention.attention_scores

    scale, usual = model.config.attention_multiplier, model.head_dim**-0.5
    keys = keys.repeat_interleave(model.num_heads // model.num_kv_heads, dim=1)
    seen = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    error = float((queries @ keys.transpose(-1, -2) * scale - scores)[..., seen].abs().max())
    assert scale != usual
    assert error < 1e-2 * float(scores[..., seen].abs().max())
    return {"scale": scale, "usual": f"{usual:.3f}", "error": error}


@note(
    "Logits are the head's product over a number",
    figures={
        "scaling": "`logits_scaling`",
        "before": "range of `lm_head_output`",
        "after": "range of `logits`",
        "lens": "largest error of `project_on_vocab` of the last stream",
    },
)
def divided_logits(model: StandardizedTransformer) -> dict[str, Any]:
    """What the head returns is divided by {scaling}: `lm_head_output` ranges over {before}, `logits` over {after}. A
    lens that stops at the head's product is too sure of itself; `project_on_vocab` divides, and gives the logits of the
    last stream with an error of {lens}."""
    last = f"layers.{model.num_layers - 1}.layer_output"
    values = model.read([[5, 9, 33, 2, 61, 17]], "lm_head_output", "logits", last)
    product, logits = values["lm_head_output"], values["logits"]
    assert torch.equal(product / model.config.logits_scaling, logits)
    lens = float((model.project_on_vocab(values[last]) - logits).abs().max())
    assert lens == 0
    spans = [float(one.max() - one.min()) for one in (product, logits)]
    return {"scaling": model.config.logits_scaling, "before": spans[0], "after": spans[1], "lens": lens}


@note(
    "With all four at one it is Llama",
    figures={"equal": "values that a Llama with these weights has bit for bit", "all": "values compared"},
    on="a copy with the four numbers set to one",
)
def llama_at_one(model: StandardizedTransformer) -> dict[str, Any]:
    """Set the residual, embedding and logits numbers to 1 and the attention's to one over the root of a head's width,
    and {equal} of {all} values of a pass are those of a Llama with the same weights, bit for bit."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    ones = dict.fromkeys(("residual_multiplier", "embedding_multiplier", "logits_scaling"), 1.0)
    settings = {**model.config.to_dict(), **ones, "attention_multiplier": model.head_dim**-0.5}
    plain: Any = AutoModelForCausalLM.from_config(model.config.from_dict(settings)).to(model.dtype).eval()
    given = {key: value for key, value in settings.items() if key in LlamaConfig().to_dict()}
    config = LlamaConfig.from_dict({**given, "architectures": None, "model_type": "llama"})
    llama: Any = LlamaForCausalLM(config)
    llama = llama.to(model.dtype).eval()
    found = []
    for hf in (plain, llama):
        hf.load_state_dict(model.hf.state_dict())
        found.append(type(model)(hf, check=False).read([[5, 9, 33, 2, 61, 17]]))
    ours, theirs = found
    tensors = [name for name, value in ours.items() if isinstance(value, torch.Tensor)]
    equal = [name for name in tensors if torch.equal(ours[name], theirs[name])]
    assert equal == tensors
    return {"equal": len(equal), "all": len(tensors)}


@note(
    "Steering adds to the stream, and not through the factor",
    figures={
        "stream": "what a vector of length 1 adds to the stream, steered at `layer_output`",
        "sublayer": "what it adds, put into `mlp_output`",
    },
)
def edits_and_the_factor(model: StandardizedTransformer) -> dict[str, Any]:
    """A vector added to `layer_output` arrives whole: the stream moves by {stream}. The same vector added to
    `mlp_output` goes through the factor with everything else there, and the stream moves by {sublayer}. Which of the
    two is meant has to be said."""
    ids, path = [[5, 9, 33, 2, 61, 17]], "layers.1.layer_input"
    vector = torch.ones(model.hidden_size, dtype=model.dtype) / model.hidden_size**0.5
    before, moved = model.read(ids, path)[path], []
    for name in ("layers.0.layer_output", "layers.0.mlp.mlp_output"):
        with model.steer(name, vector):
            moved.append(float((model.read(ids, path)[path] - before)[0, -1].norm()))
    assert abs(moved[0] - 1) < 1e-3
    assert abs(moved[1] - model.config.residual_multiplier) < 1e-3
    return {"stream": f"{moved[0]:.3f}", "sublayer": f"{moved[1]:.3f}"}
