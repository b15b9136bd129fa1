"""Qwen3-Next's notes: three layers of memory to one of attention, each with many small experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_IDS = [[5, 9, 33, 2, 61, 17, 40, 8]]


def _layers(model: StandardizedTransformer) -> tuple[int, int]:
    """The first layer with a mixer, and the first with attention."""
    kinds = list(model.config.layer_types)
    return kinds.index("linear_attention"), kinds.index("full_attention")


@note(
    "Three layers mix by a state, the fourth attends",
    figures={
        "mixers": "layers whose tokens are mixed by a state",
        "attending": "layers with attention",
        "published": "layers with attention in the 80B, of all",
    },
)
def three_to_one(model: StandardizedTransformer) -> dict[str, Any]:
    """Here {mixers} layers carry a state from token to token and {attending} attends; in the 80B {published} do. A
    layer has `mixer_output` or `attention_output`, and never both; `"*.mixer_output"` reads the layers that have it."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    mixing = {path.split(".")[1] for path in model.read(_IDS, "mixer_output")}
    attending = {path.split(".")[1] for path in model.read(_IDS, "attention_output")}
    assert not mixing & attending
    assert len(mixing) + len(attending) == model.num_layers
    kinds = config_of("qwen3_next", CHECKPOINTS["qwen3_next"][0]).layer_types
    published = f"{kinds.count('full_attention')} of {len(kinds)}"
    return {"mixers": len(mixing), "attending": len(attending), "published": published}


@note(
    "The same sum, whichever sublayer writes",
    figures={"exact": "layers that add up bit for bit", "layers": "layers"},
)
def one_sum(model: StandardizedTransformer) -> dict[str, Any]:
    """In {exact} of {layers} layers the stream gains what its mixer or its attention returns, and then what its MLP
    does, bit for bit. The kinds differ in what they compute, not in how they write."""
    exact, values = 0, model.read(_IDS)
    for layer in range(model.num_layers):
        host = f"layers.{layer}."
        first = values[
            f"{host}mixer.mixer_output"
            if f"{host}mixer.mixer_output" in values
            else f"{host}self_attn.attention_output"
        ]
        total = values[f"{host}layer_input"] + first + values[f"{host}mlp.mlp_output"]
        assert torch.equal(total, values[f"{host}layer_output"])
        exact += 1
    return {"exact": exact, "layers": model.num_layers}


@note(
    "An attention has a gate on what it takes home",
    figures={
        "smallest": "smallest factor of the gate",
        "largest": "largest factor",
        "error": "largest error of `attention_premix` as head outputs times the gate",
    },
)
def gated_attention(model: StandardizedTransformer) -> dict[str, Any]:
    """`q_proj` makes a gate beside the queries, and what the heads take home is multiplied by its sigmoid, between
    {smallest} and {largest} here, before the output projection. So `attention_premix` is not the head outputs side by
    side: it is these times the gate, off by {error}."""
    _, layer = _layers(model)
    with model.trace(_IDS):
        attention = model.layers[layer].self_attn
        both = attention.q_proj.output.unflatten(-1, (model.num_heads, -1))
        heads = attention.attention_head_outputs
        premix = attention.attention_premix

    factor = both[..., model.head_dim :].sigmoid()
    error = float((heads * factor - premix).abs().max())
    assert error < 1e-4
    assert not torch.equal(heads, premix)
    return {"smallest": float(factor.min()), "largest": float(factor.max()), "error": error}


@note(
    "A mixer keeps no more of a long text",
    figures={
        "short": "numbers that a mixer's cache holds after 8 tokens",
        "long": "the same after 40",
        "grown": "factor by which an attention's grew",
    },
)
def constant_state(model: StandardizedTransformer) -> dict[str, Any]:
    """A mixer's part of the cache is a state and the last inputs of a convolution: {short} numbers after 8 tokens and
    {long} after 40. An attention's grew {grown} times. With three mixers to one attention the cache of a long text is a
    quarter of what it would be."""
    mixing, attending = _layers(model)

    def held(length: int) -> list[int]:
        ids = torch.tensor([[5 + number % 80 for number in range(length)]], device=model.device)
        with torch.no_grad():
            cache = model.hf(ids, use_cache=True).past_key_values
        return [_numbers(cache.layers[layer]) for layer in (mixing, attending)]

    short, long = held(8), held(40)
    assert short[0] == long[0] > 0
    assert long[1] == 5 * short[1]
    return {"short": f"{short[0]:,}", "long": f"{long[0]:,}", "grown": long[1] // short[1]}


def _numbers(layer: Any) -> int:
    """How many numbers a layer of a cache holds."""
    held = [*vars(layer).values()]
    held += [tensor for value in held if isinstance(value, dict) for tensor in value.values()]
    return sum(value.numel() for value in held if isinstance(value, torch.Tensor) and value.is_floating_point())


@note(
    "The shared expert has a gate, too",
    figures={
        "error": "largest error of `mlp_output` as routed plus gated shared part",
        "smallest": "smallest factor of the gate",
        "largest": "largest factor",
    },
)
def gated_shared_expert(model: StandardizedTransformer) -> dict[str, Any]:
    """Beside the routed experts every token goes through a shared one, whose part is multiplied by one number between 0
    and 1, {smallest} to {largest} here. `mlp_output` is `routed_output` plus that part, off by {error}:
    `shared_expert_output` is the part before its gate."""
    with model.trace(_IDS):
        given = model.layers[0].mlp_input
        shared, routed = model.layers[0].mlp.shared_expert_output, model.layers[0].mlp.routed_output
        output = model.layers[0].mlp.mlp_output

    factor = model.hf.model.layers[0].mlp.shared_expert_gate(given).sigmoid().detach()
    error = float((routed + factor * shared - output).abs().max())
    assert error < 1e-4
    return {"error": error, "smallest": float(factor.min()), "largest": float(factor.max())}


@note(
    "Norms add one to their weight, but for one",
    figures={
        "error": "largest error of the normed stream with 1 + weight",
        "plain": "layers whose mixer has a norm that multiplies by its weight alone",
    },
)
def one_plus_weight(model: StandardizedTransformer) -> dict[str, Any]:
    """A block's norms and those of the heads multiply by one more than their weight, as Gemma's: rebuilt so the normed
    stream is off by {error}. The norm inside a mixer does not: {plain} layers have one that multiplies by its weight
    and by a gate."""
    with model.trace(_IDS):
        stream = model.layers[0].layer_input.float()
        normed = model.layers[0].mixer_norm_output.float()

    unit = stream / (stream.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt()
    weight = model.hf.model.layers[0].input_layernorm.weight.float()
    error = float((unit * (1 + weight) - normed).detach().abs().max())
    kinds = model.config.layer_types
    plain = 0
    for number, kind in enumerate(kinds):
        if kind == "linear_attention":
            norm = model.hf.model.layers[number].linear_attn.norm
            ones = torch.ones(1, norm.weight.shape[0], dtype=model.dtype)
            open_gate = torch.full_like(ones, 30.0)  # whose activation is 30
            torch.testing.assert_close(norm(ones, open_gate) / 30, norm.weight[None], rtol=1e-2, atol=1e-2)
            plain += 1
    assert error < 1e-3
    return {"error": error, "plain": plain}


@note(
    "A quarter of an attention's head turns",
    figures={"turned": "dimensions of a head that turn", "head": "dimensions of a head"},
)
def partial_turn(model: StandardizedTransformer) -> dict[str, Any]:
    """Where layers attend, {turned} of the {head} dimensions of a head turn; the others are what the norms made, bit
    for bit. The layers between know positions by their state, and have no rotary at all."""
    _, layer = _layers(model)
    with model.trace(_IDS):
        attention = model.layers[layer].self_attn
        plain, turned = attention.keys_before_rotary, attention.attention_keys

    changed = (plain != turned)[:, :, 1:].flatten(0, 2).any(0)
    count = int(changed.sum())
    assert bool(changed[:count].all())
    assert count < model.head_dim / 2
    return {"turned": count, "head": model.head_dim}
