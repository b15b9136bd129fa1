"""Gemma 3's notes: normed heads in the place of the soft cap, and two rotaries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Norms over heads, where Gemma 2 had a cap",
    figures={
        "cap": "what the config says of a cap on scores",
        "moved": "change of the scores with a normed stream a hundred times as long",
        "largest": "largest score in size",
    },
)
def norms_for_the_cap(model: StandardizedTransformer) -> dict[str, Any]:
    """The config's `attn_logit_softcapping` is {cap}, and nothing would read it. Each head's query and key goes through
    a norm instead: with a normed stream a hundred times as long, scores of up to {largest} move by {moved} alone. So
    fused kernels can be used, which have no tanh."""
    ids, path = [[5, 9, 33]], "layers.0.self_attn.attention_scores"
    seen = torch.ones(3, 3, dtype=torch.bool).tril()
    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.attention_norm_output": lambda value: value * 100}):
        after = model.read(ids, path)[path]
    moved, largest = float((after - before)[..., seen].abs().max()), float(before[..., seen].abs().max())
    assert model.config.attn_logit_softcapping is None
    assert moved < 0.01 * largest
    return {"cap": "unset", "moved": moved, "largest": largest}


@note(
    "Two rotaries, one for windows and one for all",
    figures={
        "local": "tokens in which the slowest pair of a windowed layer turns once",
        "global": "the same of a layer that sees all",
    },
)
def two_rotaries(model: StandardizedTransformer) -> dict[str, Any]:
    """Layers with a window turn queries and keys by a rotary with a short base, the others by one with a long base: the
    slowest pair turns once in {local} tokens there, and in {global} here. Rotating a query by hand needs to know of
    which kind its layer is."""
    settings = model.config.rope_parameters
    width = model.head_dim
    local, whole = (
        2 * math.pi * settings[kind]["rope_theta"] ** ((width - 2) / width)
        for kind in ("sliding_attention", "full_attention")
    )
    ids = [[5, 9, 33, 2, 61, 17]]
    angles = {}
    for kind in ("sliding_attention", "full_attention"):
        layer = model.config.layer_types.index(kind)
        with model.trace(ids):
            attention = model.layers[layer].self_attn
            plain, turned = attention.queries_before_rotary.float(), attention.attention_queries.float()
        half = width // 2
        last = half - 1  # the slowest pair: this dimension and the one half a head further
        one, other = (value[0, 0, -1, [last, last + half]] for value in (plain, turned))
        cosine = float(one @ other / (one.norm() * other.norm()))
        angles[kind] = math.acos(max(-1.0, min(1.0, cosine)))
        assert abs(one.norm() - other.norm()) < 1e-3
    expected = (len(ids[0]) - 1) * 2 * math.pi / local
    assert abs(angles["sliding_attention"] - expected) < 1e-2
    assert angles["full_attention"] < angles["sliding_attention"]
    return {"local": f"{local:,.0f}", "global": f"{whole:,.0f}"}


@note(
    "Few layers see all",
    figures={
        "whole": "layers that see all, in the reference checkpoint",
        "layers": "its layers",
        "window": "its window",
    },
    on="the reference checkpoint's config",
)
def few_see_all(model: StandardizedTransformer) -> dict[str, Any]:
    """Of the {layers} layers of the 1B {whole} see all, every sixth; the others see {window} tokens. What binds distant
    tokens together runs through these {whole} patterns."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    config = config_of("gemma3", CHECKPOINTS["gemma3"][0])
    whole = [number for number, kind in enumerate(config.layer_types) if kind == "full_attention"]
    assert all((number + 1) % 6 == 0 for number in whole)
    assert len(config.layer_types) == config.num_hidden_layers
    return {"whole": len(whole), "layers": config.num_hidden_layers, "window": config.sliding_window}


@note(
    "A head's norm adds one to its weight, too",
    figures={
        "error": "largest error of keys rebuilt with 1 + weight",
        "wrong": "largest error with the weight alone, as Qwen3 has it",
    },
)
def one_plus_weight(model: StandardizedTransformer) -> dict[str, Any]:
    """The norms of queries and keys are Gemma's own: they multiply by one more than their weight. Keys rebuilt so are
    off by at most {error}; with the weight alone, as in Qwen3, by {wrong}."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        projected = attention.k_proj.output
        keys = attention.keys_before_rotary.float()

    heads = projected.unflatten(-1, (model.num_kv_heads, model.head_dim)).float()
    unit = (heads / (heads.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt()).transpose(1, 2)
    weight = attention.k_norm.weight.float()
    error, wrong = (float((unit * gain - keys).abs().max()) for gain in (1 + weight, weight))
    assert error < 1e-2 * float(keys.abs().max())
    assert wrong > 10 * error
    return {"error": error, "wrong": wrong}


@note(
    "The scale of scores is a setting",
    figures={
        "scalar": "`query_pre_attn_scalar`",
        "width": "width of a head",
        "error": "largest error of scores rebuilt",
    },
)
def scale_of_scores(model: StandardizedTransformer) -> dict[str, Any]:
    """Scores are products over the root of `query_pre_attn_scalar`, here {scalar}, and not of a head's width, here
    {width}. Rebuilt so they are off by at most {error}. In the 1B both are 256, in other sizes they differ."""
    with model.trace([[5, 9, 33]]):
        attention = model.layers[0].self_attn
        queries, keys = attention.attention_queries.float(), attention.attention_keys.float()
        scores = attention.attention_scores

    scalar = model.config.query_pre_attn_scalar
    keys = keys.repeat_interleave(model.num_heads // model.num_kv_heads, dim=1)
    seen = torch.ones(3, 3, dtype=torch.bool).tril()
    error = float((queries @ keys.transpose(-1, -2) * scalar**-0.5 - scores)[..., seen].abs().max())
    assert error < 1e-2 * float(scores[..., seen].abs().max())
    assert model.layers[0].self_attn.module.scaling == scalar**-0.5
    return {"scalar": scalar, "width": model.head_dim, "error": error}


@note(
    "An edit on the way out is not an edit of the sublayer",
    figures={
        "inner": "change of the stream when what `down_proj` returns is doubled",
        "outer": "change when `mlp_output` is doubled",
    },
)
def two_places_of_a_sublayer(model: StandardizedTransformer) -> dict[str, Any]:
    """A norm stands between the MLP and the stream. Doubling what `down_proj` returns moves `layer_output` by {inner},
    since the norm takes the factor out again; doubling `mlp_output`, which is behind the norm, moves it by {outer}."""
    ids, path, changes = [[5, 9, 33, 2, 61, 17]], "layers.1.layer_output", []
    before = model.read(ids, path)[path]
    for name in ("layers.1.mlp.down_proj.output", "layers.1.mlp.mlp_output"):
        with model.hooks({name: lambda value: value * 2}):
            changes.append(float((model.read(ids, path)[path] - before).abs().max()))
    assert changes[0] < 1e-2 * changes[1]
    return {"inner": changes[0], "outer": changes[1]}
