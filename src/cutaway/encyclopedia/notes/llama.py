"""Llama's notes: one sublayer after the other, shared key heads, a gate, and no biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Attention first, then the MLP reads what it wrote",
    figures={
        "exact": "blocks that add up bit for bit, one sublayer after the other",
        "moved": "change of the same block's `mlp_input` when its attention is silenced",
    },
)
def sequential(model: StandardizedTransformer) -> dict[str, Any]:
    """A Llama block writes to its stream twice. Attention's output is added first and makes `layer_mid`; the MLP reads
    that, normed, and adds its own. In all {exact} blocks both sums hold bit for bit. So the MLP does see its block's
    attention: silence it and `mlp_input` moves by up to {moved}, where in a parallel block it would not move at all."""
    ids = [[5, 9, 33, 2, 61, 17, 40, 8]]
    exact = 0
    with model.trace(ids):
        for layer in model.layers:
            stream = layer.layer_input
            attention = layer.self_attn.attention_output
            middle = layer.layer_mid
            mlp = layer.mlp.mlp_output
            assert torch.equal(stream + attention, middle)
            assert torch.equal(middle + mlp, layer.layer_output)
            exact += 1

    path = "layers.0.mlp_input"
    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.self_attn.attention_output": torch.zeros_like}):
        after = model.read(ids, path)[path]
    moved = float((after - before).abs().max())
    assert moved > 0
    return {"exact": exact, "moved": moved}


@note(
    "Several query heads share one key head",
    figures={
        "queries": "query heads",
        "keys": "key and value heads",
        "error": "largest error of scores rebuilt with shared keys",
    },
)
def grouped_heads(model: StandardizedTransformer) -> dict[str, Any]:
    """There are {queries} heads of queries and {keys} of keys and values. `attention_keys` shows the {keys} that
    exist, not the copies that a kernel makes of them: query head `h` reads key head `h // group`. Repeating each key
    for its group and multiplying gives `attention_scores` back. A cache is that much smaller, and an edit of one key
    head moves a whole group of patterns."""
    with model.trace([[5, 9, 33, 2, 61, 17, 40, 8]]):
        attention = model.layers[0].self_attn
        queries, keys = attention.attention_queries, attention.attention_keys
        scores = attention.attention_scores

    group = model.num_heads // model.num_kv_heads
    shared = keys.repeat_interleave(group, dim=1)
    rebuilt = queries.float() @ shared.float().transpose(-1, -2) * model.qk_head_dim**-0.5
    seen = torch.ones_like(rebuilt, dtype=torch.bool).tril()
    error = float((rebuilt - scores)[seen].abs().max())
    assert keys.shape[1] == model.num_kv_heads
    assert error < 1e-2 * float(rebuilt[seen].abs().max())
    return {"queries": model.num_heads, "keys": model.num_kv_heads, "error": error}


@note(
    "The MLP is gated",
    figures={
        "exact": "blocks in which the neurons are activation times up, bit for bit",
        "silent": "share of activations that are below zero",
    },
)
def gated_mlp(model: StandardizedTransformer) -> dict[str, Any]:
    """Two projections read the same input. One goes through the activation and becomes a gate, the other is what
    the gate lets through, so a neuron has two sides: `mlp_activation` is the gate, `mlp_neurons` the product, and it is
    the product that `down_proj` turns into directions of the stream. That held bit for bit in {exact} blocks.
    With SiLU a closed gate is slightly negative ({silent} of them here), so a neuron's sign is the up projection's
    as much as the gate's."""
    exact, below = 0, []
    with model.trace([[5, 9, 33, 2, 61, 17, 40, 8]]):
        for layer in model.layers:
            gate = layer.mlp.mlp_activation
            up = layer.mlp.up_proj.output
            assert torch.equal(gate * up, layer.mlp.mlp_neurons)
            exact += 1
            below.append(float((gate < 0).float().mean()))
    return {"exact": exact, "silent": sum(below) / len(below)}


@note(
    "The norm divides and does not centre",
    figures={
        "error": "largest error of the norm rebuilt from its formula",
        "scaled": "change of its output when the stream is doubled",
        "shifted": "change when 1 is added to every entry of it",
    },
)
def rms_norm(model: StandardizedTransformer) -> dict[str, Any]:
    """RMSNorm divides a position's vector by its root mean square and multiplies by a weight. It takes no mean off
    and adds no bias. Doubling the stream changes its output by {scaled}; adding a constant to every entry, which
    LayerNorm would not notice, moves it by up to {shifted}. A mean direction in the stream is therefore information."""
    layer = model.layers[model.num_layers // 2]
    with model.trace([[5, 9, 33, 2, 61, 17, 40, 8]]):
        stream = layer.layer_input.clone()
        normed = layer.attention_norm_output.clone()

    norm = layer.input_layernorm.module
    square = stream.float().pow(2).mean(-1, keepdim=True)
    rebuilt = norm.weight * stream / (square + norm.variance_epsilon).sqrt()
    error = float((rebuilt - normed).abs().max())
    scaled = float((norm(2 * stream) - normed).abs().max())
    shifted = float((norm(stream + 1) - normed).abs().max())
    assert getattr(norm, "bias", None) is None
    assert max(error, scaled) < 0.05 * shifted
    return {"error": error, "scaled": scaled, "shifted": shifted}


@note(
    "No biases",
    figures={"modules": "linear layers and norms, none with a bias", "weights": "matrices and norm weights"},
)
def no_biases(model: StandardizedTransformer) -> dict[str, Any]:
    """None of the {modules} linear layers and norms has a bias, so a lens readout carries no constant, and a
    stream of zeros gives logits of zero."""
    modules = [m for m in model.hf.modules() if isinstance(m, torch.nn.Linear) or "Norm" in type(m).__name__]
    assert all(getattr(module, "bias", None) is None for module in modules)

    nothing = torch.zeros(1, 1, model.hidden_size, device=model.device, dtype=model.dtype)
    assert model.project_on_vocab(nothing).abs().max() == 0
    return {"modules": len(modules), "weights": len(list(model.hf.parameters()))}
