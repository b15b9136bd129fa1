"""SmolLM3's notes: layers without a rotary among layers with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


def _layers(model: StandardizedTransformer) -> tuple[int, int]:
    """The first layer with a rotary, and the first without."""
    turning = list(model.config.no_rope_layers)
    return turning.index(1), turning.index(0)


@note(
    "Some layers do not turn at all",
    figures={
        "turning": "layers whose queries turn",
        "still": "layers whose queries are what `q_proj` made, bit for bit",
    },
)
def layers_without_rotary(model: StandardizedTransformer) -> dict[str, Any]:
    """`no_rope_layers` has an entry for each layer. In {turning} layers here the rotary turns queries and keys; in
    {still} they reach attention just as the projections made them, bit for bit. In the published model it is every
    fourth layer that does not turn."""
    still = 0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for number, layer in enumerate(model.layers):
            made = layer.self_attn.q_proj.output.unflatten(-1, (model.num_heads, -1)).transpose(1, 2)
            same = torch.equal(made, layer.self_attn.attention_queries)
            assert same == (not model.config.no_rope_layers[number])
            still += same
    assert 0 < still < model.num_layers
    return {"turning": model.num_layers - still, "still": still}


@note(
    "Where nothing turns, order is not seen",
    figures={
        "still": "change of the last query's output in a layer without rotary when the tokens before it change places",
        "turning": "the same in a layer with one",
    },
)
def order_is_not_seen(model: StandardizedTransformer) -> dict[str, Any]:
    """Exchange what stands at two earlier places, in one layer's normed stream alone. In a layer without a rotary the
    last query takes home the same, up to {still}: it sees what is there and not where. With a rotary it differs by
    {turning}."""
    changes = []
    for layer in _layers(model):
        path = f"layers.{layer}.self_attn.attention_head_outputs"

        def exchanged(normed: torch.Tensor) -> torch.Tensor:
            return normed[:, [0, 3, 2, 1, 4, 5]]

        ids = [[5, 9, 33, 2, 61, 17]]
        before = model.read(ids, path)[path][:, -1]
        with model.hooks({f"layers.{layer}.attention_norm_output": exchanged}):
            after = model.read(ids, path)[path][:, -1]
        changes.append(float((after - before).abs().max()))
    turning, still = changes
    assert still < 1e-4 < turning
    return {"still": still, "turning": turning}


@note(
    "The layers are of two kinds, and the names say so",
    figures={
        "with": "values of a layer with a rotary",
        "without": "values of a layer without",
        "gone": "what the latter does not have",
    },
)
def two_kinds(model: StandardizedTransformer) -> dict[str, Any]:
    """A layer without a rotary has nothing before it and nothing after: {gone} are gone there, {without} values are
    left of {with}. What is asked of all layers by `*` is given for those that have it."""
    read = model.read([[5, 9, 33]])
    found = [{path.split(".")[-1] for path in read if path.startswith(f"layers.{layer}.")} for layer in _layers(model)]
    gone = sorted(found[0] - found[1])
    assert gone == ["keys_before_rotary", "queries_before_rotary"]
    return {"with": len(found[0]), "without": len(found[1]), "gone": " and ".join(f"`{name}`" for name in gone)}


@note(
    "Same sizes, same weights, another function",
    figures={
        "parameters": "parameters of a layer with a rotary, and of one without",
        "moved": "largest change of the logits when every layer turns",
    },
)
def nothing_in_the_weights(model: StandardizedTransformer) -> dict[str, Any]:
    """A rotary has no weights: both kinds of layers have {parameters} parameters, and a checkpoint's tensors do not say
    which is which. Load these weights into a model in which every layer turns, and nothing complains; the logits move
    by up to {moved}."""
    from transformers import AutoModelForCausalLM

    counts = {sum(p.numel() for p in layer.module.parameters()) for layer in model.layers}
    assert len(counts) == 1
    config = model.config.from_dict({**model.config.to_dict(), "no_rope_layers": [1] * model.num_layers})
    hf: Any = AutoModelForCausalLM.from_config(config).to(model.dtype).eval()
    hf.load_state_dict(model.hf.state_dict())
    ids = [[5, 9, 33, 2, 61, 17]]
    turned = type(model)(hf, check=False).read(ids, "logits")["logits"]
    moved = float((turned - model.read(ids, "logits")["logits"]).abs().max())
    assert moved > 1e-3
    return {"parameters": f"{counts.pop():,}", "moved": moved}


@note(
    "A shifted prompt is the same prompt",
    figures={
        "moved": "largest change of the logits when all position ids are moved by 100",
        "range": "range of the logits",
    },
)
def only_distances(model: StandardizedTransformer) -> dict[str, Any]:
    """Half of the layers see distances and the other half no positions at all, so nothing sees where a prompt begins:
    move all position ids by 100 and the logits, over a range of {range}, move by {moved}, which is rounding."""
    ids = torch.tensor([[5, 9, 33, 2, 61, 17]], device=model.device)
    places = torch.arange(6, device=model.device)[None]
    found = [model.read(ids, "logits", position_ids=places + shift)["logits"] for shift in (0, 100)]
    moved, span = float((found[1] - found[0]).abs().max()), float(found[0].max() - found[0].min())
    assert moved < 1e-3 * span
    return {"moved": moved, "range": span}


@note(
    "A window, where there is one, is on the layers that do not turn",
    figures={
        "still": "keys that a late query of a layer without rotary sees",
        "turning": "the same of a layer with one",
    },
    on="a copy with a window of 4",
)
def window_of_the_still(model: StandardizedTransformer) -> dict[str, Any]:
    """With `use_sliding_window` and a window of 4, of nine tokens the last query sees {still} in a layer without rotary
    and {turning} in one with. The published checkpoint sets none, so that its layers without positions see all."""
    from transformers import AutoModelForCausalLM

    window = {"use_sliding_window": True, "sliding_window": 4, "layer_types": None}
    config = model.config.from_dict({**model.config.to_dict(), **window})
    hf: Any = AutoModelForCausalLM.from_config(config).to(model.dtype).eval()
    hf.load_state_dict(model.hf.state_dict())
    patterns = type(model)(hf, check=False).read([[5 + i for i in range(9)]], "attention_probabilities")
    seen = [int((pattern[0, :, -1] > 0).any(0).sum()) for pattern in patterns.values()]
    turning, still = (seen[layer] for layer in _layers(model))
    assert (turning, still) == (9, 4)
    return {"still": still, "turning": turning}
