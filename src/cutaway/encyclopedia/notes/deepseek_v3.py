"""DeepSeek-V3's notes: keys and values out of one small vector, and experts in groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_IDS = [[5, 9, 33, 2, 61, 17, 40, 8]]


def _with_experts(model: StandardizedTransformer) -> int:
    """The first layer that has experts."""
    return next(number for number, layer in enumerate(model.hf.model.layers) if hasattr(layer.mlp, "experts"))


@note(
    "All heads' keys and values come out of one small vector",
    figures={
        "latent": "numbers of `latent_kv`",
        "expanded": "numbers that all heads' keys and values have that come of it",
        "error": "largest error of values expanded from it",
    },
)
def latent(model: StandardizedTransformer) -> dict[str, Any]:
    """`latent_kv` has {latent} numbers a token, and a matrix expands them to the {expanded} of all heads' values and of
    the part of their keys that does not turn. Values so expanded are off by {error}. What heads can read of a token is
    no more than these few numbers hold."""
    with model.trace(_IDS):
        attention = model.layers[0].self_attn
        small = attention.latent_kv
        values = attention.attention_values

    expanded = attention.kv_b_proj.module(small).unflatten(-1, (model.num_heads, -1))
    rebuilt = expanded[..., -model.head_dim :].transpose(1, 2)
    error = float((rebuilt - values).detach().abs().max())
    assert error < 1e-4
    assert small.shape[-1] < expanded.shape[-2:].numel()
    return {"latent": small.shape[-1], "expanded": expanded.shape[-2:].numel(), "error": error}


@note(
    "A key has a part that turns, and all heads share it",
    figures={
        "turned": "numbers of a key that turn",
        "still": "numbers that do not",
        "shared": "largest difference of the turned part between two heads",
    },
)
def shared_turning_part(model: StandardizedTransformer) -> dict[str, Any]:
    """A key of {still} numbers from the latent and {turned} that turn: the latter come straight from the stream, once
    for all heads, which differ in them by {shared}. Where a token stands is said in {turned} numbers, whatever the
    head."""
    with model.trace(_IDS):
        keys = model.layers[0].self_attn.attention_keys

    turned = model.config.qk_rope_head_dim
    part, rest = keys[..., -turned:], keys[..., :-turned]
    shared = float((part - part[:, :1]).abs().max())
    assert shared == 0
    assert not torch.equal(rest, rest[:, :1].expand_as(rest))
    return {"turned": turned, "still": model.qk_head_dim - turned, "shared": shared}


@note(
    "Queries and keys are wider than values",
    figures={
        "keys": "numbers of a query and a key",
        "values": "numbers of a value",
        "premix": "shape of `attention_premix`",
    },
)
def two_widths(model: StandardizedTransformer) -> dict[str, Any]:
    """A head has {keys} numbers to compare by and {values} to take home. `head_dim` is the latter, `qk_head_dim` the
    former, and `attention_premix` is {premix}. Code that takes one for the other gets shapes that do not fit, or worse,
    that do."""
    with model.trace(_IDS):
        attention = model.layers[0].self_attn
        queries, values = attention.attention_queries, attention.attention_values
        premix = attention.attention_premix

    assert queries.shape[-1] == model.qk_head_dim != values.shape[-1] == model.head_dim
    shape = " × ".join(map(str, premix.shape))
    return {"keys": model.qk_head_dim, "values": model.head_dim, "premix": shape}


@note(
    "One edit of the latent moves keys and values of all heads",
    figures={
        "heads": "heads whose values move",
        "keys": "heads whose keys move",
        "turned": "change of the part of keys that turns",
    },
)
def edit_of_the_latent(model: StandardizedTransformer) -> dict[str, Any]:
    """Change one number of `latent_kv` and the values of {heads} heads and the keys of {keys} move; the part of a key
    that turns does not, {turned}. It is the place to edit what a token offers, whichever head reads it."""
    names = ["layers.0.self_attn.attention_values", "layers.0.self_attn.attention_keys"]

    def changed(value: torch.Tensor) -> torch.Tensor:
        value = value.clone()
        value[..., 0] += 1
        return value

    before = model.read(_IDS, names)
    with model.hooks({"layers.0.self_attn.latent_kv": changed}):
        after = model.read(_IDS, names)
    moved = [(after[name] != before[name]).flatten(2).any(-1)[0] for name in names]
    turned = model.config.qk_rope_head_dim
    part = float((after[names[1]] - before[names[1]])[..., -turned:].abs().max())
    assert part == 0
    assert all(bool(one.all()) for one in moved)
    return {"heads": int(moved[0].sum()), "keys": int(moved[1].sum()), "turned": part}


@note(
    "A shared expert stands beside the routed ones",
    figures={
        "exact": "layers in which `mlp_output` is `routed_output` plus `shared_expert_output`, bit for bit",
        "share": "length of the shared part over that of the whole, on average",
    },
)
def shared_expert(model: StandardizedTransformer) -> dict[str, Any]:
    """Beside the experts that the router chooses every token goes through one more. In {exact} of {exact} layers with
    experts `mlp_output` is `routed_output + shared_expert_output`, bit for bit; the shared part is {share} of the
    whole's length here."""
    exact, shares = 0, []
    values = model.read(_IDS)
    for layer in range(_with_experts(model), model.num_layers):
        routed, shared, whole = (
            values[f"layers.{layer}.mlp.{name}"] for name in ("routed_output", "shared_expert_output", "mlp_output")
        )
        assert torch.equal(routed + shared, whole)
        shares.append(float((shared.norm(dim=-1) / whole.norm(dim=-1)).mean()))
        exact += 1
    return {"exact": exact, "share": f"{sum(shares) / len(shares):.2f}"}


@note(
    "Chosen by one number, weighed by another",
    figures={
        "sum": "what a token's weights sum to",
        "otherwise": "tokens that would go elsewhere if experts were chosen by their weights alone",
        "tokens": "tokens of the layer",
    },
)
def choice_and_weight(model: StandardizedTransformer) -> dict[str, Any]:
    """Scores are sigmoids and not a softmax. A bias that training moves to keep experts busy is added before choosing,
    group by group, and left out of the weights, which sum to {sum}, the config's factor. Without the bias and the
    groups {otherwise} of {tokens} tokens would go elsewhere."""
    layer = _with_experts(model)
    logits, weights, indices = (
        model.read(_IDS, f"layers.{layer}.mlp.{name}")[f"layers.{layer}.mlp.{name}"]
        for name in ("router_logits", "expert_weights", "expert_indices")
    )
    scores = logits.float().sigmoid()
    chosen = scores.gather(-1, indices)
    expected = chosen / chosen.sum(-1, keepdim=True) * model.config.routed_scaling_factor
    torch.testing.assert_close(weights.float(), expected, rtol=1e-3, atol=1e-3)
    plain = scores.topk(indices.shape[-1], dim=-1).indices.sort(-1).values
    otherwise = int((plain != indices.sort(-1).values).any(-1).sum())
    return {
        "sum": f"{model.config.routed_scaling_factor:g}",
        "otherwise": otherwise,
        "tokens": indices.shape[1],
    }


@note(
    "The first layers have one MLP",
    figures={
        "dense": "layers with one MLP here",
        "routed": "layers with experts",
        "published": "layers with one MLP in the 671B",
    },
)
def first_layers_are_dense(model: StandardizedTransformer) -> dict[str, Any]:
    """`first_k_dense_replace` leaves the first layers an MLP as Llama's: {dense} here, {published} in the 671B. They
    have `mlp_neurons` and no router; the {routed} layers above have a router and no neurons by name."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    dense = len(model.read(_IDS, "mlp_neurons"))
    routed = len(model.read(_IDS, "router_logits"))
    if not dense:
        raise DoesNotApply("every layer of this checkpoint has experts.")
    assert dense == model.config.first_k_dense_replace
    assert dense + routed == model.num_layers
    published = config_of("deepseek_v3", CHECKPOINTS["deepseek_v3"][0]).first_k_dense_replace
    return {"dense": dense, "routed": routed, "published": published}
