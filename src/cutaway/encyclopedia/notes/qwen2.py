"""Qwen2's notes: biases on three projections of seven, and windows from a layer on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Three biases a block, and no others",
    figures={"biased": "linear maps of a block that have a bias", "linear": "linear maps of a block"},
)
def three_biases(model: StandardizedTransformer) -> dict[str, Any]:
    """Of the {linear} linear maps of a block {biased} have a bias: those that make queries, keys and values. The
    attention's output, the MLP and the head have none, as in Llama, which has none at all."""
    attention, mlp = model.layers[0].self_attn, model.layers[0].mlp
    biases = [attention.b_Q, attention.b_K, attention.b_V, attention.b_O, mlp.b_gate, mlp.b_in, mlp.b_out]
    biased = [bias for bias in biases if bias is not None]
    assert all(bias is not None for bias in biases[:3])
    assert len(biased) == 3
    assert model.b_U is None
    return {"biased": len(biased), "linear": len(biases)}


@note(
    "The biases alone already prefer distances",
    figures={
        "spread": "range of the scores that come of the biases alone, in one head",
        "error": "largest difference between two such scores at the same distance",
    },
)
def bias_of_distance(model: StandardizedTransformer) -> dict[str, Any]:
    """Give a block's attention nothing, a normed stream of zeros, and its queries and keys are their biases, turned by
    the rotary. Their products still differ, by {spread} in head 0 of layer 0: a head prefers some distances before it
    has seen a token. That it is distances and nothing else shows along each diagonal, where scores differ by at most
    {error}."""
    ids = [[5, 9, 33, 2, 61, 17, 40, 8]]
    with model.trace(ids):
        model.layers[0].attention_norm_output[:] = 0
        scores = model.layers[0].self_attn.attention_scores[0, 0].double()

    diagonals = [scores.diagonal(-distance) for distance in range(len(ids[0]))]
    error = max(float(one.max() - one.min()) for one in diagonals)
    means = torch.stack([one.mean() for one in diagonals])
    spread = float(means.max() - means.min())
    assert error < 1e-4 * max(spread, 1e-3)
    assert spread > 0
    return {"spread": spread, "error": error}


@note(
    "Windows begin at a layer",
    figures={
        "window": "keys that a query of a windowed layer sees",
        "all": "keys that the last query sees in layer 0",
        "layers": "layers with a window here",
    },
)
def windows_from_a_layer(model: StandardizedTransformer) -> dict[str, Any]:
    """`use_sliding_window` with `max_window_layers` gives the layers from there on a window, and leaves those below it
    whole. Here {layers} layers have one: their last query sees {window} keys, and layer 0's sees {all}. Published
    checkpoints have it switched off."""
    config = model.config
    if not config.use_sliding_window:
        raise DoesNotApply("this checkpoint has `use_sliding_window` off: every layer sees all.")
    length = config.sliding_window + 4
    pattern = model.read([[5 + i for i in range(length)]], "attention_probabilities")
    seen = [int((value[0, :, -1] > 0).any(dim=0).sum()) for value in pattern.values()]
    windowed = [number for number, kind in enumerate(config.layer_types) if kind == "sliding_attention"]
    assert all(seen[layer] == config.sliding_window for layer in windowed)
    assert all(seen[layer] == length for layer in range(model.num_layers) if layer not in windowed)
    return {"window": config.sliding_window, "all": seen[0], "layers": len(windowed)}


@note(
    "What is beyond the window cannot be reached in that layer",
    figures={"full": "change of the last query's output in layer 0", "windowed": "the same in a windowed layer"},
)
def beyond_the_window(model: StandardizedTransformer) -> dict[str, Any]:
    """Change the value of the first token in a layer that sees all, and what the last query takes home changes, by up
    to {full}. Change it in a windowed layer, and nothing does: {windowed}. To reach far back, an edit has to be made
    where the layer looks."""
    config = model.config
    if not config.use_sliding_window:
        raise DoesNotApply("this checkpoint has `use_sliding_window` off: every layer sees all.")
    ids = [[5 + i for i in range(config.sliding_window + 4)]]
    windowed = config.layer_types.index("sliding_attention")
    changes = []
    for layer in (config.layer_types.index("full_attention"), windowed):
        path = f"layers.{layer}.self_attn.attention_head_outputs"
        before = model.read(ids, path)[path][:, -1]
        with model.hooks({f"layers.{layer}.self_attn.attention_values": lambda value: value * 3}, positions=0):
            after = model.read(ids, path)[path][:, -1]
        changes.append(float((after - before).abs().max()))
    assert changes[0] > 0
    assert changes[1] == 0
    return {"full": changes[0], "windowed": changes[1]}


@note(
    "A cache holds key heads, not heads",
    figures={
        "kept": "numbers that the cache keeps of a token",
        "heads": "what it would keep with a key head for each head",
        "share": "the former over the latter",
    },
)
def small_cache(model: StandardizedTransformer) -> dict[str, Any]:
    """What generation keeps of a token are its keys and values, in all layers: {kept} numbers here. With a key head for
    each query head it would be {heads}; the checkpoint keeps {share} of that."""
    ids = torch.tensor([[5, 9, 33, 2, 61, 17]], device=model.device)
    with torch.no_grad():
        cache = model.hf(ids, use_cache=True).past_key_values
    kept = sum(layer.keys[0, :, 0].numel() + layer.values[0, :, 0].numel() for layer in cache.layers)
    heads = 2 * model.num_layers * model.num_heads * model.head_dim
    assert kept * model.num_heads == heads * model.num_kv_heads
    return {"kept": kept, "heads": heads, "share": f"1/{model.num_heads // model.num_kv_heads}"}


@note(
    "The slowest pair turns once in millions of tokens",
    figures={
        "base": "base of the rotary in Qwen2.5's configs",
        "slowest": "tokens in which the slowest pair of dimensions turns once",
        "tenth": "the same with Llama 2's base of 10,000",
    },
    on="Qwen2.5-7B's config",
)
def slow_rotary(model: StandardizedTransformer) -> dict[str, Any]:
    """Pairs of dimensions turn at speeds from one radian a token down to the base's power. With a base of {base} and
    heads as wide as the 7B's, the slowest needs {slowest} tokens for a turn; with Llama 2's it would need {tenth}. So
    within any prompt some dimensions hardly turn, and compare contents whatever the distance."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    config = config_of("qwen2", CHECKPOINTS["qwen2"][0])
    base, width = config.rope_parameters["rope_theta"], config.hidden_size // config.num_attention_heads
    slowest, tenth = (2 * math.pi * some ** ((width - 2) / width) for some in (base, 10000.0))
    inverse = type(model)(config, dispatch=False).hf.model.rotary_emb
    assert inverse.inv_freq.shape == (width // 2,)
    assert slowest > config.max_position_embeddings > tenth
    return {"base": f"{base:,.0f}", "slowest": f"{slowest:,.0f}", "tenth": f"{tenth:,.0f}"}
