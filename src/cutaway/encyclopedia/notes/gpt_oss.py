"""gpt-oss's notes: a sink beside each row of scores, windows on every other layer, and experts with biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_IDS = [[5, 9, 33, 2, 61, 17, 40, 8]]


@note(
    "A row of the pattern need not sum to one",
    figures={
        "least": "smallest sum of a row of `attention_probabilities`",
        "most": "largest sum",
        "error": "largest error of 1 as that sum and `attention_sinks`",
    },
)
def sinks(model: StandardizedTransformer) -> dict[str, Any]:
    """Each head has a number that stands in the softmax beside the scores, and takes its share: rows sum to between
    {least} and {most} here, and with `attention_sinks` to 1, up to {error}. A head can look nowhere, without a first
    token to rest on."""
    values = model.read(_IDS, "attention_probabilities", "attention_sinks")
    sums, whole = [], []
    for layer in range(model.num_layers):
        rows = values[f"layers.{layer}.self_attn.attention_probabilities"].float().sum(-1)
        sums.append(rows)
        whole.append(rows + values[f"layers.{layer}.self_attn.attention_sinks"].float())
    rows, error = torch.cat(sums), float((torch.cat(whole) - 1).abs().max())
    assert error < 1e-3
    assert float(rows.min()) < 0.99
    return {"least": float(rows.min()), "most": float(rows.max()), "error": error}


@note(
    "The sink is a number of the head, whatever the token",
    figures={
        "error": "largest error of `attention_sinks` as a softmax with the head's own number",
        "heads": "heads of a layer",
        "highest": "largest of the scores as they are served",
    },
)
def sink_is_a_parameter(model: StandardizedTransformer) -> dict[str, Any]:
    """A layer keeps one number for each of its {heads} heads. Put beside a query's products with the keys, it takes its
    share of the softmax: `attention_sinks`, rebuilt up to {error}. The model takes the largest of a row away before its
    softmax, the sink among them, so that no score that is served is above {highest}."""
    with model.trace(_IDS):
        attention = model.layers[1].self_attn
        queries, keys = attention.attention_queries.float(), attention.attention_keys.float()
        scores = attention.attention_scores
        found = attention.attention_sinks

    keys = keys.repeat_interleave(model.num_heads // model.num_kv_heads, dim=1)
    seen = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    products = (queries @ keys.transpose(-1, -2) * model.head_dim**-0.5).masked_fill(~seen, float("-inf"))
    own = attention.sinks.float()
    beside = own.view(1, -1, 1, 1).expand(*products.shape[:3], 1)
    rebuilt = torch.cat([products, beside], dim=-1).softmax(-1)[..., -1]
    error, highest = float((rebuilt - found).detach().abs().max()), float(scores.max())
    assert own.shape == (model.num_heads,)
    assert error < 1e-3
    assert highest <= 0
    return {"error": error, "heads": model.num_heads, "highest": f"{highest:g}"}


@note(
    "A head goes quiet where its scores are low",
    figures={
        "before": "what the head's pattern sums to",
        "after": "what it sums to with its scores lowered by 3",
        "shrunk": "factor by which its output is shorter",
    },
)
def quiet_heads(model: StandardizedTransformer) -> dict[str, Any]:
    """Lower all scores of a head by 3, which would change nothing in a family without sinks. Here its pattern, which
    summed to {before}, sums to {after}: the sink gains what the keys lose. The pattern keeps its shape, and what the
    head takes home is {shrunk} times as long as before."""
    sinks = torch.stack([value[0, :, -1] for value in model.read(_IDS, "attention_sinks").values()]).float()
    layer, head = divmod(int((sinks - 0.5).abs().argmin()), model.num_heads)
    path = f"layers.{layer}.self_attn.attention_"
    names = [f"{path}head_outputs", f"{path}probabilities"]

    def lowered(scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, head] -= 3
        return scores

    before = model.read(_IDS, names)
    with model.hooks({f"{path}scores": lowered}):
        after = model.read(_IDS, names)
    one, other = (found[names[1]][0, head, -1].float() for found in (before, after))
    kept = float(other.sum() / one.sum())
    torch.testing.assert_close(other, one * kept, rtol=1e-3, atol=1e-4)
    lengths = [float(found[names[0]][0, -1, head].norm()) for found in (before, after)]
    assert kept < 0.99
    assert abs(lengths[1] / lengths[0] - kept) < 1e-2
    return {"before": float(one.sum()), "after": float(other.sum()), "shrunk": lengths[1] / lengths[0]}


@note(
    "Every other layer sees a window",
    figures={"seen": "keys that the last query sees, layer by layer"},
)
def alternating_windows(model: StandardizedTransformer) -> dict[str, Any]:
    """Layers take turns between a window and all; the last query of the first layers sees {seen} keys here. In the
    published models the window is 128."""
    window = model.config.sliding_window
    length = window + 5
    paths = [f"layers.{layer}.self_attn.attention_probabilities" for layer in range(min(4, model.num_layers))]
    patterns = model.read([[5 + i % 80 for i in range(length)]], paths)
    seen = [int((patterns[path][0, :, -1] > 0).any(0).sum()) for path in paths]
    kinds = model.config.layer_types[: len(seen)]
    assert seen == [window if kind == "sliding_attention" else length for kind in kinds]
    return {"seen": ", ".join(map(str, seen))}


@note(
    "The chosen share a softmax of their own",
    figures={
        "error": "largest error of `expert_weights` as a softmax over the chosen logits",
        "bias": "largest logit in size that the router gives for nothing",
    },
)
def router(model: StandardizedTransformer) -> dict[str, Any]:
    """The router picks the largest logits and takes a softmax over these, as Mixtral's, off by {error}. Unlike
    Mixtral's it has a bias: given a stream of zeros it still prefers experts, by up to {bias}."""
    values = model.read(_IDS, "router_logits", "expert_weights", "expert_indices")
    errors = []
    for layer in range(model.num_layers):
        logits, weights, indices = (
            values[f"layers.{layer}.mlp.{name}"] for name in ("router_logits", "expert_weights", "expert_indices")
        )
        errors.append(float((logits.float().gather(-1, indices).softmax(-1) - weights).abs().max()))
    with model.trace(_IDS):
        model.layers[0].mlp_input[:] = 0
        nothing = model.layers[0].mlp.router_logits
    bias = float(nothing.abs().max())
    assert max(errors) < 1e-3
    assert bias > 0
    return {"error": max(errors), "bias": bias}


@note(
    "Experts clamp what they are given, and add one",
    figures={
        "error": "largest error of `routed_output` rebuilt",
        "limit": "what the gate and the rest are clamped to",
        "wrong": "its error as a plain gated MLP",
    },
)
def clamped_experts(model: StandardizedTransformer) -> dict[str, Any]:
    """An expert's gate and what it gates are every other column of one matrix, clamped to {limit}; the gate goes
    through a steep sigmoid, and the rest has 1 added. Rebuilt so `routed_output` is off by {error}; as the gated MLP of
    other families, with the columns as they lie, by {wrong}."""
    with model.trace(_IDS):
        given = model.layers[0].mlp_input
        weights, indices = model.layers[0].mlp.expert_weights, model.layers[0].mlp.expert_indices
        output = model.layers[0].mlp.routed_output

    experts, limit, steep = model.layers[0].mlp.experts, 7.0, 1.702
    rebuilt, plain = torch.zeros_like(output), torch.zeros_like(output)
    for token in range(given.shape[1]):
        for place in range(indices.shape[-1]):
            expert, weight = int(indices[0, token, place]), weights[0, token, place]
            both = given[0, token] @ experts.gate_up_proj[expert] + experts.gate_up_proj_bias[expert]
            gate, up = both[::2].clamp(max=limit), both[1::2].clamp(-limit, limit)
            inner = (up + 1) * gate * torch.sigmoid(steep * gate)
            rebuilt[0, token] += weight * (inner @ experts.down_proj[expert] + experts.down_proj_bias[expert])
            gate, up = both.chunk(2)
            plain[0, token] += weight * (torch.nn.functional.silu(gate) * up @ experts.down_proj[expert])
    error, wrong = (float((one - output).detach().abs().max()) for one in (rebuilt, plain))
    assert error < 1e-3 * max(1.0, float(output.abs().max())) < wrong
    return {"error": error, "limit": f"{limit:g}", "wrong": wrong}
