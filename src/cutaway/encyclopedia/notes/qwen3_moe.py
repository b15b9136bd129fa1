"""Qwen3-MoE's notes: many small experts, and a softmax over all of them first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_IDS = [[5, 9, 33, 2, 61, 17, 40, 8]]


def _with_experts(model: StandardizedTransformer) -> list[int]:
    """The layers that have experts."""
    return [number for number, layer in enumerate(model.hf.model.layers) if hasattr(layer.mlp, "experts")]


@note(
    "A softmax over all, then the chosen",
    figures={
        "error": "largest error of `expert_weights` as parts of a softmax over all experts, divided by their sum",
        "share": "what the chosen have of that softmax, on average",
    },
)
def softmax_first(model: StandardizedTransformer) -> dict[str, Any]:
    """The router takes a softmax over all experts and then the largest; with `norm_topk_prob` these are divided by
    their sum. The weights so rebuilt are off by {error}. The chosen have {share} of the softmax on average, and with
    the setting off that is what their weights would sum to."""
    if not model.config.norm_topk_prob:
        raise DoesNotApply("this checkpoint does not divide the weights by their sum.")
    layers = _with_experts(model)
    values = model.read(_IDS, "router_logits", "expert_weights", "expert_indices")
    errors, shares = [], []
    for layer in layers:
        logits, weights, indices = (
            values[f"layers.{layer}.mlp.{name}"] for name in ("router_logits", "expert_weights", "expert_indices")
        )
        parts = logits.float().softmax(-1).gather(-1, indices)
        errors.append(float((parts / parts.sum(-1, keepdim=True) - weights).abs().max()))
        shares.append(float(parts.sum(-1).mean()))
    assert max(errors) < 1e-3
    return {"error": max(errors), "share": f"{100 * sum(shares) / len(shares):.0f}%"}


@note(
    "Without the division, weights say how sure the router is",
    figures={"least": "smallest sum of a token's weights", "most": "largest sum"},
    on="a copy with `norm_topk_prob` off",
)
def undivided(model: StandardizedTransformer) -> dict[str, Any]:
    """With `norm_topk_prob` off, as transformers has it by default and no published Qwen3 does, a token's weights sum
    to between {least} and {most} here: an unsure router writes less into the stream. The setting changes every output,
    and no shape."""
    from transformers import AutoModelForCausalLM

    config = model.config.from_dict({**model.config.to_dict(), "norm_topk_prob": False})
    hf: Any = AutoModelForCausalLM.from_config(config).to(model.dtype).eval()
    hf.load_state_dict(model.hf.state_dict())
    weights = type(model)(hf, check=False).read(_IDS, "expert_weights")
    sums = torch.cat([value.sum(-1).flatten() for value in weights.values()])
    assert float(sums.max()) < 1
    return {"least": float(sums.min()), "most": float(sums.max())}


@note(
    "Many small experts make many mixtures",
    figures={
        "experts": "experts of a layer in the 30B",
        "chosen": "experts that a token goes through",
        "ways": "ways to choose them",
    },
    on="the reference checkpoint's config",
)
def many_mixtures(model: StandardizedTransformer) -> dict[str, Any]:
    """The 30B has {experts} experts a layer and each token goes through {chosen}: there are {ways} ways to choose them,
    where Mixtral has 28. What a layer's MLP is for one token it hardly ever is for another."""
    import math

    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    config = config_of("qwen3_moe", CHECKPOINTS["qwen3_moe"][0])
    ways = math.comb(config.num_experts, config.num_experts_per_tok)
    assert math.comb(8, 2) == 28 < ways
    exponent = int(math.log10(ways))
    return {
        "experts": config.num_experts,
        "chosen": config.num_experts_per_tok,
        "ways": f"{ways / 10**exponent:.1f}·10^{exponent}",
    }


@note(
    "Some layers may have one MLP",
    figures={
        "routed": "layers with experts here",
        "plain": "layers with one MLP",
        "gained": "values that the latter have and the former do not",
    },
)
def layers_of_two_kinds(model: StandardizedTransformer) -> dict[str, Any]:
    """`mlp_only_layers` and `decoder_sparse_step` give some layers an MLP as Llama's. Here {plain} layer has one and
    {routed} have experts; the former has {gained}, the latter a router. `"mlp_neurons"` reads the layers that have
    them."""
    layers = _with_experts(model)
    plain = [number for number in range(model.num_layers) if number not in layers]
    if not plain:
        raise DoesNotApply("every layer of this checkpoint has experts.")
    read = model.read(_IDS)
    names = [
        {path.split(".")[-1] for path in read if path.startswith(f"layers.{one}.")} for one in (plain[0], layers[0])
    ]
    gained = sorted(names[0] - names[1])
    assert gained == ["mlp_activation", "mlp_neurons"]
    assert len(model.read(_IDS, "mlp_neurons")) == len(plain)
    return {"routed": len(layers), "plain": len(plain), "gained": " and ".join(f"`{name}`" for name in gained)}


@note(
    "An expert's weight scales what it adds, and nothing else",
    figures={
        "moved": "length of what is gone from `mlp_output`",
        "error": "largest error of that as weight times expert",
    },
)
def weight_scales_its_expert(model: StandardizedTransformer) -> dict[str, Any]:
    """Set the weight of a token's first expert to 0 and `mlp_output` loses exactly that expert's part: a vector of
    length {moved}, which is the expert's MLP of the token times its weight, up to {error}."""
    layer = _with_experts(model)[0]
    path = f"layers.{layer}.mlp.mlp_output"
    with model.trace(_IDS):
        given = model.layers[layer].mlp_input
        weights, indices = model.layers[layer].mlp.expert_weights, model.layers[layer].mlp.expert_indices
        before = model.layers[layer].mlp.mlp_output

    def without_the_first(value: torch.Tensor) -> torch.Tensor:
        value = value.clone()
        value[..., 0] = 0
        return value

    with model.hooks({f"layers.{layer}.mlp.expert_weights": without_the_first}):
        after = model.read(_IDS, path)[path]
    experts: Any = model.layers[layer].mlp.experts.module
    expert = int(indices[0, -1, 0])
    gate, up = (experts.gate_up_proj[expert] @ given[0, -1]).chunk(2)
    part = weights[0, -1, 0] * (experts.down_proj[expert] @ (experts.act_fn(gate) * up))
    gone = (before - after)[0, -1]
    error = float((gone - part).detach().abs().max())
    assert error < 1e-3 * max(1.0, float(gone.norm()))
    return {"moved": float(gone.norm()), "error": error}


@note(
    "The router reads what the experts read",
    figures={
        "error": "largest error of `router_logits` as a product of `mlp_input`",
        "moved": "tokens that are sent elsewhere with the router's input doubled",
    },
)
def router_is_linear(model: StandardizedTransformer) -> dict[str, Any]:
    """`router_logits` are `mlp_input` times a matrix, off by {error}, without a bias. Double what the router and the
    experts are given, and {moved} tokens go elsewhere: a longer input makes the choice surer, and not another."""
    layer = _with_experts(model)[0]
    names = [f"layers.{layer}.mlp.router_logits", f"layers.{layer}.mlp.expert_indices"]
    before = model.read(_IDS, names, f"layers.{layer}.mlp_input")
    weight = model.layers[layer].mlp.router.weight
    error = float((before[f"layers.{layer}.mlp_input"] @ weight.T - before[names[0]]).detach().abs().max())
    with model.hooks({f"layers.{layer}.mlp_input": lambda value: value * 2}):
        after = model.read(_IDS, names)
    moved = int((before[names[1]] != after[names[1]]).any(-1).sum())
    assert error < 1e-3
    assert moved == 0
    return {"error": error, "moved": moved}
