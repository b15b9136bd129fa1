"""Phi-3's and Phi-4's notes: Llama's block in fused matrices, and rotaries that change with the length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "One matrix for queries, keys and values, each whole",
    figures={
        "columns": "numbers that `qkv_proj` returns for a token",
        "cut": "where it is cut, in numbers of queries, keys and values",
        "wrong": "share of values that are wrong if cut in three equal parts",
    },
)
def three_in_one(model: StandardizedTransformer) -> dict[str, Any]:
    """`qkv_proj` returns {columns} numbers: all queries, then all keys, then all values, {cut}. Cut there,
    `attention_values` come out bit for bit. With shared key heads the parts are not equal: cut in thirds, {wrong} of
    the values would be wrong."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        fused = attention.qkv_proj.output
        values = attention.attention_values

    sizes = [model.num_heads * model.head_dim, *[model.num_kv_heads * model.head_dim] * 2]
    rebuilt = fused.split(sizes, dim=-1)[2].unflatten(-1, (model.num_kv_heads, -1)).transpose(1, 2)
    assert torch.equal(rebuilt, values)
    third = fused.chunk(3, dim=-1)[2][..., : sizes[2]].unflatten(-1, (model.num_kv_heads, -1)).transpose(1, 2)
    wrong = float((third != values).float().mean())
    return {"columns": sum(sizes), "cut": " + ".join(map(str, sizes)), "wrong": f"{100 * wrong:.0f}%"}


@note(
    "The gate and what it gates are one matrix",
    figures={
        "exact": "blocks in which neurons are activation times the second half, bit for bit",
        "swapped": "largest error with the halves exchanged",
    },
)
def fused_gate(model: StandardizedTransformer) -> dict[str, Any]:
    """`gate_up_proj` returns the gate first and what it multiplies behind it. In {exact} blocks `mlp_activation` is the
    activation of the first half, and `mlp_neurons` that times the second, bit for bit; with the halves exchanged the
    neurons are off by up to {swapped}."""
    exact, swapped = 0, 0.0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            gate, up = layer.mlp.gate_up_proj.output.chunk(2, dim=-1)
            activation = layer.mlp.mlp_activation
            neurons = layer.mlp.mlp_neurons
            assert torch.equal(layer.mlp.act_fn.module(gate), activation)
            assert torch.equal(up * activation, neurons)
            swapped = max(swapped, float((layer.mlp.act_fn.module(up) * gate - neurons).abs().max()))
            exact += 1
    assert swapped > 0
    return {"exact": exact, "swapped": swapped}


@note(
    "The weights come apart by name all the same",
    figures={"error": "largest error of queries from `W_Q` before the rotary", "shape": "shape of `W_Q`, by head"},
)
def weights_by_name(model: StandardizedTransformer) -> dict[str, Any]:
    """There is no `q_proj`. `W_Q` is the part of `qkv_proj` that makes queries, by head, {shape}, a view that takes no
    memory. The normed stream times it gives the first part of what `qkv_proj` returns, off by at most {error}."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        normed = model.layers[0].attention_norm_output
        fused = model.layers[0].self_attn.qkv_proj.output

    weight = model.layers[0].self_attn.W_Q
    made = torch.einsum("bsm,hmd->bshd", normed, weight).flatten(-2)
    error = float((made - fused[..., : made.shape[-1]]).abs().max())
    assert error < 1e-2 * float(fused.abs().max())
    assert weight.untyped_storage().data_ptr() == model.hf.model.layers[0].self_attn.qkv_proj.weight.data_ptr()
    return {"error": error, "shape": " × ".join(map(str, weight.shape))}


@note(
    "Only a part of a head may turn",
    figures={"turned": "dimensions of a head that turn", "head": "dimensions of a head"},
)
def partial_turn(model: StandardizedTransformer) -> dict[str, Any]:
    """`partial_rotary_factor` leaves a part of each head as it is: of {head} dimensions {turned} turn here. Phi-3 turns
    all of them, Phi-4-mini three quarters, and Phi-2 turned two fifths."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        fused = attention.qkv_proj.output
        queries = attention.attention_queries

    plain = fused[..., : model.num_heads * model.head_dim].unflatten(-1, (model.num_heads, -1)).transpose(1, 2)
    changed = (plain != queries)[:, :, 1:].flatten(0, 2).any(0)
    turned = int(model.head_dim * model.config.rope_parameters.get("partial_rotary_factor", 1.0))
    assert bool(changed[:turned].all())
    assert not changed[turned:].any()
    return {"turned": turned, "head": model.head_dim}


@note(
    "A long text turns otherwise, from its first token on",
    figures={
        "original": "tokens up to which the short factors hold here",
        "moved": "change of the first tokens' keys when one more token is there",
    },
    on="a tiny random Phi-3 with a long rope",
)
def long_rope(model: StandardizedTransformer) -> dict[str, Any]:
    """The 128k checkpoints have two lists of factors for the rotary's speeds, and take the long one as soon as a text
    is longer than the original context, here {original} tokens: for all its tokens. One token more, and the keys of the
    tokens before it are others, by up to {moved}. Values read of a short prompt are not those of its beginning in a
    long one."""
    from transformers import AutoModelForCausalLM

    original, half = 8, model.head_dim // 2
    long = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * half,
        "long_factor": [1.0 + number for number in range(half)],
        "original_max_position_embeddings": original,
    }
    settings = {**model.config.to_dict(), "rope_parameters": long, "original_max_position_embeddings": original}
    hf: Any = AutoModelForCausalLM.from_config(type(model.config).from_dict(settings)).eval()
    hf.load_state_dict(model.hf.state_dict())
    stretched = type(model)(hf, check=False)
    ids, path = [5 + number for number in range(original + 1)], "layers.0.self_attn.attention_keys"
    short, longer = (stretched.read([row], path)[path][:, :, :original] for row in (ids[:-1], ids))
    moved = float((short - longer).abs().max())
    assert moved > 1e-3
    assert torch.equal(short[:, :, 0], longer[:, :, 0])
    return {"original": original, "moved": moved}


@note(
    "Otherwise it is Llama's block",
    figures={"equal": "values that a Llama with the matrices taken apart has", "error": "their largest difference"},
)
def llamas_block(model: StandardizedTransformer) -> dict[str, Any]:
    """Take the fused matrices apart, give them to a Llama of the same sizes, and run one token, for which no rotary
    turns: {equal} values are the same, up to {error}. In spite of the name Phi-3 does not have Phi-2's wiring: its
    block is Llama's, and not a parallel one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    given = {key: value for key, value in model.config.to_dict().items() if key in LlamaConfig().to_dict()}
    hf: Any = LlamaForCausalLM(
        LlamaConfig.from_dict({**given, "architectures": None, "model_type": "llama", "head_dim": None})
    )
    weights = dict(model.hf.state_dict())
    for number in range(model.num_layers):
        here = f"model.layers.{number}."
        qkv, gates = (weights.pop(f"{here}{name}.weight") for name in ("self_attn.qkv_proj", "mlp.gate_up_proj"))
        width, shared = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
        for name, part in zip("qkv", qkv.split([width, shared, shared]), strict=True):
            weights[f"{here}self_attn.{name}_proj.weight"] = part
        for name, part in zip(("gate", "up"), gates.chunk(2), strict=True):
            weights[f"{here}mlp.{name}_proj.weight"] = part
    hf.load_state_dict(weights)
    llama = type(model)(hf.to(model.dtype).eval(), check=False)

    names = ("layers.*.layer_input", "layers.*.attention_values", "layers.0.mlp_norm_output", "attention_norm_output")
    ours, theirs = model.read([[5]], *names), llama.read([[5]], *names)
    error = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    assert error < 1e-3
    return {"equal": len(ours), "error": error}
