"""How Phi's block is wired: one norm, two sublayers side by side, biases everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, Reported, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "One norm, and both sublayers read it",
    figures={
        "blocks": "blocks in which attention and MLP are called with equal tensors",
        "norms": "norms in a block",
    },
)
def one_norm(model: StandardizedTransformer) -> dict[str, Any]:
    """Phi does not run attention first and the MLP second. A block norms its stream once and calls both with what comes
    out, so `attention_norm_output`, `mlp_norm_output` and `mlp_input` are one tensor under three names, in all {blocks}
    blocks of {model}. There is no `post_attention_layernorm`, hence no `layer_mid` either. What the block returns
    is the stream itself, not a tuple around it."""
    blocks = 0
    with model.trace("def area(width, height):\n    return"):
        for layer in model.layers:
            normed = layer.attention_norm_output
            assert torch.equal(layer.self_attn.input, normed)
            assert torch.equal(layer.mlp_input, normed)
            assert torch.equal(layer.output, layer.layer_output)  # a bare tensor
            blocks += 1

    norms = [name for name, _ in model.layers[0].module.named_children() if "norm" in name]
    assert norms == ["input_layernorm"]
    return {"blocks": blocks, "norms": len(norms)}


@note(
    "The sum has an order, and only that order is exact",
    figures={
        "exact": "blocks that add up bit for bit as attention + MLP + stream",
        "gap": "largest error when the stream comes first",
        "largest": "largest entry of the stream",
    },
    reported=(
        Reported("gap", "up to 2.0", "phi-2 in bfloat16"),
        Reported("largest", "about 800", "phi-2"),
    ),
)
def sum_order(model: StandardizedTransformer) -> dict[str, Any]:
    """On paper `layer_input + attention_output + mlp_output` can be added in any order; in floating point it cannot.
    Phi adds what the two sublayers bring and puts the stream on last. Follow that order and {exact} of {exact}
    blocks come out bit for bit. Begin with the stream and the last digits differ, here by up to {gap}. The coarser the
    dtype and the longer the stream, the more this matters when you account for who wrote what."""
    exact, gap, largest = 0, 0.0, 0.0
    with model.trace("for name, value in settings.items():\n    print(name,"):
        for layer in model.layers:
            stream = layer.layer_input
            attention = layer.self_attn.attention_output
            mlp = layer.mlp.mlp_output
            output = layer.layer_output

            assert torch.equal(attention + mlp + stream, output)
            exact += 1
            gap = max(gap, float((stream + attention + mlp - output).abs().max()))
            largest = max(largest, float(output.abs().max()))
    return {"exact": exact, "gap": gap, "largest": largest}


@note(
    "Attention cannot reach the MLP beside it",
    figures={
        "here": "change of this block's `mlp_input` when its attention is silenced",
        "next": "change of the next block's `mlp_input`",
    },
)
def no_path_inside_a_block(model: StandardizedTransformer) -> dict[str, Any]:
    """Silence one block's attention. The MLP of the same block is called with the same bits as before, because nothing
    leads from one to the other; the first MLP that can tell is in the block after, whose input moves by up to {next}.
    A circuit in which a head feeds an MLP needs two blocks here, where a sequential model could do it in one."""
    if model.num_layers < 2:
        raise DoesNotApply("it compares two blocks, and this model has one.")
    prompt = "import os\nimport sys\n\nprint(os."
    block = min(1, model.num_layers - 2)
    paths = [f"layers.{block}.mlp_input", f"layers.{block + 1}.mlp_input"]
    before = model.read(prompt, paths)

    with model.hooks({f"layers.{block}.self_attn.attention_output": torch.zeros_like}):
        after = model.read(prompt, paths)

    here, following = (float((after[path] - before[path]).abs().max()) for path in paths)
    assert torch.equal(after[paths[0]], before[paths[0]])
    assert following > 0
    return {"here": here, "next": following}


@note(
    "Biases everywhere",
    figures={
        "with_bias": "linear layers and norms, each with a bias",
        "largest": "largest entry of the biases of q, k and v",
        "ratio": "neurons for each dimension of the stream",
    },
)
def biases_everywhere(model: StandardizedTransformer) -> dict[str, Any]:
    """Each of the {with_bias} linear layers and norms in {model} has a bias: queries, keys and values, the attention's
    output projection (Phi calls it `dense`, and it is no part of the MLP), `fc1` and `fc2`, every norm, and even
    `lm_head`. The MLP is plain, `fc1`, `gelu_new`, `fc2`, and {ratio} times as wide as the stream. Embedding
    and head are separate matrices."""
    modules = [m for m in model.hf.modules() if isinstance(m, (torch.nn.Linear, torch.nn.LayerNorm))]
    assert all(module.bias is not None for module in modules)
    assert all(module.eps == 1e-5 for module in modules if isinstance(module, torch.nn.LayerNorm))

    attention = [layer.self_attn.module for layer in model.layers]
    biases = [getattr(a, name).bias for a in attention for name in ("q_proj", "k_proj", "v_proj")]
    largest = max(float(bias.detach().abs().max()) for bias in biases)
    assert largest > 0

    assert model.config.hidden_act == "gelu_new"
    assert model.embed_tokens.weight is not model.lm_head.weight
    return {
        "with_bias": len(modules),
        "largest": largest,
        "ratio": model.intermediate_size // model.hidden_size,
    }


@note(
    "Dropout is written down and does nothing",
    figures={
        "rate": "`resid_pdrop` in the copy that is run",
        "eval": "its logits differ between two passes in eval mode by",
        "train": "and in training mode by",
    },
    on="a small random Phi",
)
def dropout_is_idle(model: StandardizedTransformer) -> dict[str, Any]:
    """phi-2's config sets `resid_pdrop` to 0.1. It plays no part when the model is read: in eval mode, which is how
    Cutaway opens a checkpoint, two passes of a small random Phi with that setting agree bit for bit. In training mode
    they part by up to {train}."""
    small = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = model.config.from_dict({**small, "resid_pdrop": 0.1, "initializer_range": 0.3})
    hf = type(model.hf)(config)
    ids = torch.arange(12)[None]

    with torch.no_grad():
        hf.eval()
        idle = float((hf(ids).logits - hf(ids).logits).abs().max())
        hf.train()
        busy = float((hf(ids).logits - hf(ids).logits).abs().max())
    assert idle == 0 < busy
    return {"rate": 0.1, "eval": idle, "train": busy}
