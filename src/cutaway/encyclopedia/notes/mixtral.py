"""Mixtral's notes: eight MLPs in the place of one, of which each token takes two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_IDS = [[5, 9, 33, 2, 61, 17, 40, 8]]


@note(
    "Each token goes through two of the experts",
    figures={
        "chosen": "experts that a token goes through",
        "experts": "experts of a layer",
        "right": "tokens and layers where those chosen are the ones with the largest logits",
        "all": "tokens and layers",
    },
)
def chosen_experts(model: StandardizedTransformer) -> dict[str, Any]:
    """A router scores {experts} experts for each token, and the token goes through {chosen}: those with the largest
    `router_logits`, in {right} of {all} cases. The choice is a value of its own, `expert_indices`, and can be
    edited."""
    right = cases = count = experts = 0
    values = model.read(_IDS, "router_logits", "expert_indices")
    for layer in range(model.num_layers):
        logits, indices = (values[f"layers.{layer}.mlp.{name}"] for name in ("router_logits", "expert_indices"))
        count, experts = indices.shape[-1], logits.shape[-1]
        best = logits.topk(count, dim=-1).indices.sort(-1).values
        right += int((best == indices.sort(-1).values).all(-1).sum())
        cases += indices[..., 0].numel()
    assert right == cases
    return {"chosen": count, "experts": experts, "right": right, "all": cases}


@note(
    "The weights are a softmax of the chosen alone",
    figures={
        "error": "largest error of `expert_weights` as a softmax over the chosen logits",
        "whole": "what the chosen have of a softmax over all experts, on average",
    },
)
def weights_of_the_chosen(model: StandardizedTransformer) -> dict[str, Any]:
    """A token's two weights sum to 1: they are a softmax over the chosen experts' logits, off by {error}. Of a softmax
    over all experts the two have {whole} on average; that share is thrown away, so a router that is unsure weighs its
    choice as fully as one that is not."""
    values = model.read(_IDS, "router_logits", "expert_weights", "expert_indices")
    errors, shares = [], []
    for layer in range(model.num_layers):
        logits, weights, indices = (
            values[f"layers.{layer}.mlp.{name}"] for name in ("router_logits", "expert_weights", "expert_indices")
        )
        chosen = logits.float().gather(-1, indices).softmax(-1)
        errors.append(float((chosen - weights).abs().max()))
        shares.append(float(logits.float().softmax(-1).gather(-1, indices).sum(-1).mean()))
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=1e-3, atol=1e-3)
    assert max(errors) < 1e-3
    return {"error": max(errors), "whole": f"{100 * sum(shares) / len(shares):.0f}%"}


@note(
    "What the MLP adds is the weighted sum of two MLPs",
    figures={"error": "largest error of `mlp_output` rebuilt expert by expert", "experts": "experts that were needed"},
)
def sum_of_experts(model: StandardizedTransformer) -> dict[str, Any]:
    """Take each chosen expert's matrices out of the fused parameters, run its gated MLP on the token, weigh and add:
    `mlp_output` is rebuilt up to {error}. On this prompt {experts} experts of layer 0 were needed."""
    with model.trace(_IDS):
        given = model.layers[0].mlp_input
        weights, indices = model.layers[0].mlp.expert_weights, model.layers[0].mlp.expert_indices
        output = model.layers[0].mlp.mlp_output

    experts: Any = model.layers[0].mlp.experts.module
    rebuilt = torch.zeros_like(output)
    for place in range(indices.shape[-1]):
        for token in range(given.shape[1]):
            expert = int(indices[0, token, place])
            gate, up = (experts.gate_up_proj[expert] @ given[0, token]).chunk(2)
            part = experts.down_proj[expert] @ (experts.act_fn(gate) * up)
            rebuilt[0, token] += weights[0, token, place] * part
    error = float((rebuilt - output).detach().abs().max())
    assert error < 1e-3 * max(1.0, float(output.abs().max()))
    return {"error": error, "experts": indices.unique().numel()}


@note(
    "A token can be sent elsewhere",
    figures={
        "moved": "change of `mlp_output` at the token that was sent elsewhere",
        "others": "change at the others",
    },
)
def sent_elsewhere(model: StandardizedTransformer) -> dict[str, Any]:
    """Put other numbers into `expert_indices` of the last token and it goes through other experts, with the weights
    that it had: its `mlp_output` moves by {moved}. Those of the other tokens move by {others}: an expert multiplies all
    of its tokens at once, and another number of them is rounded otherwise."""
    path = "layers.0.mlp.mlp_output"
    before = model.read(_IDS, path)[path]
    experts = model.read(_IDS, "layers.0.mlp.router_logits")["layers.0.mlp.router_logits"].shape[-1]

    def elsewhere(indices: torch.Tensor) -> torch.Tensor:
        return (indices + 1) % experts

    with model.hooks({"layers.0.mlp.expert_indices": elsewhere}, positions=-1):
        after = model.read(_IDS, path)[path]
    moved, others = (float((after - before)[:, part].abs().max()) for part in (slice(-1, None), slice(-1)))
    assert moved > 0
    assert others < 1e-4 * moved
    return {"moved": moved, "others": others}


@note(
    "Most parameters rest",
    figures={"all": "parameters of the 8x7B", "used": "parameters that a token goes through", "share": "their share"},
    on="the reference checkpoint's config",
)
def resting_parameters(model: StandardizedTransformer) -> dict[str, Any]:
    """Of the {all} parameters of the 8x7B a token goes through {used}, {share}: those outside the experts, and two
    experts of eight in each layer. Which two differs from layer to layer and token to token."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    opened = type(model)(config_of("mixtral", CHECKPOINTS["mixtral"][0]), dispatch=False)
    whole = sum(parameter.numel() for parameter in opened.hf.parameters())
    inside = sum(p.numel() for layer in opened.hf.model.layers for p in layer.mlp.experts.parameters())
    config = opened.config
    used = whole - inside + inside * config.num_experts_per_tok // config.num_local_experts
    assert used < 0.3 * whole
    return {
        "all": f"{whole / 1e9:.1f} billion",
        "used": f"{used / 1e9:.1f} billion",
        "share": f"{100 * used / whole:.0f}%",
    }


@note(
    "No tensor has the neurons",
    figures={"missing": "values of the MLP that do not exist here", "shape": "shape of the fused first matrices"},
)
def no_neurons(model: StandardizedTransformer) -> dict[str, Any]:
    """All experts' matrices are one parameter, {shape}, and one module multiplies by those that are needed. So
    {missing} do not exist: a token has neurons of two experts, and which ones differs from token to token. `support()`
    says so."""
    support = model.support()
    missing = [name for name in ("mlp_activation", "mlp_neurons") if not support[name].available]
    assert missing == ["mlp_activation", "mlp_neurons"]
    shape = " × ".join(map(str, model.layers[0].mlp.experts.gate_up_proj.shape))
    return {"missing": " and ".join(f"`{name}`" for name in missing), "shape": shape}
