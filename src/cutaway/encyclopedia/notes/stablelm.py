"""StableLM's notes: LayerNorm and a quarter of rotary in Llama's plan, and a parallel block in the largest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "A LayerNorm in Llama's place",
    figures={
        "mean": "largest mean in size of what the norm gives, before its weight and bias",
        "moved": "change of the normed stream when a constant is added to the stream",
    },
)
def layer_norm(model: StandardizedTransformer) -> dict[str, Any]:
    """The names are Llama's, and the norms are not: a LayerNorm takes the mean away, so that what it gives has a mean
    of {mean} before its weight and bias, and a constant added to every dimension of the stream changes nothing,
    {moved}. The direction of all ones cannot be read by any sublayer."""
    ids, path = [[5, 9, 33, 2, 61, 17]], "layers.0.attention_norm_output"
    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.layer_input": lambda stream: stream + 3.0}):
        after = model.read(ids, path)[path]
    norm = model.layers[0].input_layernorm
    bare = (before - norm.bias) / norm.weight
    mean, moved = float(bare.mean(-1).abs().max()), float((after - before).abs().max())
    assert type(norm.module).__name__ == "LayerNorm"
    assert mean < 1e-3
    assert moved < 1e-3
    return {"mean": mean, "moved": moved}


@note(
    "A part of each head does not turn",
    figures={"turned": "dimensions of a head that turn", "head": "dimensions of a head"},
)
def partial_turn(model: StandardizedTransformer) -> dict[str, Any]:
    """Of the {head} dimensions of a head {turned} turn here, in the published checkpoints a quarter. The others reach
    the scores as `q_proj` and `k_proj` made them, bit for bit: they compare contents whatever the distance."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        plain, turned = attention.keys_before_rotary, attention.attention_keys

    changed = (plain != turned)[:, :, 1:].flatten(0, 2).any(0)
    count = int(model.head_dim * model.config.rope_parameters["partial_rotary_factor"])
    assert bool(changed[:count].all())
    assert not changed[count:].any()
    return {"turned": count, "head": model.head_dim}


@note(
    "What the unturned part scores is the same at any distance",
    figures={
        "still": "change of the unturned part's products when the prompt is moved by three tokens",
        "turned": "largest difference of the turned part's products at other distances",
    },
)
def contents_alone(model: StandardizedTransformer) -> dict[str, Any]:
    """Put the same token at two distances from a query in layer 0. The part of the score that comes of the unturned
    dimensions is the same, up to {still}; the part of the turned ones differs by {turned}."""
    count = int(model.head_dim * model.config.rope_parameters["partial_rotary_factor"])
    with model.trace([[7, 7, 7, 7, 7, 20]]):
        attention = model.layers[0].self_attn
        queries, keys = attention.attention_queries, attention.attention_keys

    keys = keys.repeat_interleave(model.num_heads // model.num_kv_heads, dim=1)
    still, turned = (
        (queries[..., part] @ keys[..., part].transpose(-1, -2))[:, :, -1, :-1]
        for part in (slice(count, None), slice(count))
    )
    apart = [float((one - one[..., :1]).abs().max()) for one in (still, turned)]
    assert apart[0] < 1e-4 < apart[1]
    return {"still": apart[0], "turned": apart[1]}


@note(
    "The largest is parallel, under the same names",
    figures={
        "sequential": "values of a layer in the sequential checkpoints",
        "parallel": "values of a layer in the 12B's wiring",
        "lost": "what the parallel block does not have",
    },
)
def parallel_variant(model: StandardizedTransformer) -> dict[str, Any]:
    """`use_parallel_residual`, set by the 12B alone, has attention and MLP read one norm side by side. A layer then has
    {parallel} values where the others have {sequential}: {lost} is gone, since no stream passes between the two."""
    found: dict[bool, list[str]] = {}
    for parallel in (False, True):
        config = model.config.from_dict({**model.config.to_dict(), "use_parallel_residual": parallel})
        rows = type(model)(config, dispatch=False).support()
        found[parallel] = [row.value for row in rows if row.available and row.host != "model"]
    lost = [value for value in found[False] if value not in found[True]]
    assert lost == ["layer_mid"]
    return {"sequential": len(found[False]), "parallel": len(found[True]), "lost": f"`{lost[0]}`"}


@note(
    "The sum keeps Llama's order, even when parallel",
    figures={
        "exact": "blocks of the parallel wiring that add up bit for bit as stream + attention + MLP",
        "gap": "largest error in Phi's order, MLP and attention first",
    },
    on="a tiny random StableLM with a parallel block",
)
def order_of_the_sum(model: StandardizedTransformer) -> dict[str, Any]:
    """A parallel block can be added up in several orders, and rounding tells them apart. StableLM's takes the stream
    first, then attention, then the MLP: so {exact} of {exact} blocks are exact, and with the two sublayers first, as
    Phi has it, they are off by up to {gap}."""
    from transformers import AutoModelForCausalLM

    config = model.config.from_dict({**model.config.to_dict(), "use_parallel_residual": True})
    hf: Any = AutoModelForCausalLM.from_config(config).eval()
    hf.load_state_dict(model.hf.state_dict(), strict=False)
    exact, gap = 0, 0.0
    with (parallel := type(model)(hf, check=False)).trace([[5, 9, 33, 2, 61, 17]]):
        for layer in parallel.layers:
            stream = layer.layer_input
            attention = layer.self_attn.attention_output
            mlp = layer.mlp.mlp_output
            output = layer.layer_output
            assert torch.equal(stream + attention + mlp, output)
            gap = max(gap, float((mlp + attention + stream - output).abs().max()))
            exact += 1
    assert gap > 0
    return {"exact": exact, "gap": gap}


@note(
    "Biases of queries, keys and values are a setting",
    figures={"with": "checkpoints on this page that have them", "all": "checkpoints on this page"},
    on="published configs",
)
def optional_biases(model: StandardizedTransformer) -> dict[str, Any]:
    """`use_qkv_bias` gives the three projections biases, and {with} of the {all} checkpoints here has them. `b_Q` is
    None where there are none, and a tensor where there are: code that adds it has to ask."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    with_biases = 0
    for checkpoint in CHECKPOINTS["stablelm"]:
        one = type(model)(config_of("stablelm", checkpoint), dispatch=False)
        has = one.hf.model.layers[0].self_attn.q_proj.bias is not None
        assert has == one.config.use_qkv_bias
        with_biases += has
    assert (model.layers[0].self_attn.b_Q is None) == (not model.config.use_qkv_bias)
    return {"with": with_biases, "all": len(CHECKPOINTS["stablelm"])}
