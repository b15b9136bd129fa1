"""OPT's notes: positions two rows further down, queries scaled early, and an MLP without a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Position 0 is in row 2",
    figures={
        "rows": "rows of the table of positions",
        "context": "positions that there are",
        "error": "largest error of the first stream as embedding plus row `position + 2`",
    },
)
def rows_of_positions(model: StandardizedTransformer) -> dict[str, Any]:
    """The table of positions has {rows} rows for {context} positions: the first two are never used by real tokens. What
    enters the first block is the embedding plus row `position + 2`, off by {error}."""
    ids = torch.tensor([[5, 9, 33, 2, 61, 17]], device=model.device)
    values = model.read(ids, "token_embeddings", "layers.0.layer_input")
    table = model.hf.model.decoder.embed_positions.weight
    rows = table[torch.arange(ids.shape[1], device=table.device) + 2]
    error = float((values["token_embeddings"] + rows - values["layers.0.layer_input"]).abs().max())
    assert error == 0
    context = model.config.max_position_embeddings
    assert table.shape[0] == context + 2
    return {"rows": table.shape[0], "context": context, "error": error}


@note(
    "Padding has a row of its own, and does not move the others",
    figures={"moved": "change of a real token's stream by padding in front", "padding": "row that padding gets"},
)
def positions_from_the_mask(model: StandardizedTransformer) -> dict[str, Any]:
    """Positions are counted from the mask by the model itself. Three padding tokens in front of a prompt leave the
    first stream of its tokens as it was, {moved}; the padding gets row {padding} of the table, for a position of -1."""
    ids, path = [5, 9, 33, 2, 61, 17], "layers.0.layer_input"
    alone = model.read([ids], path)[path][0]
    mask = [[0] * 3 + [1] * len(ids)]
    values = model.read([[1] * 3 + ids], path, "token_embeddings", attention_mask=mask)
    moved = float((values[path][0, 3:] - alone).abs().max())
    table = model.hf.model.decoder.embed_positions.weight
    given = values[path][0, 0] - values["token_embeddings"][0, 0]
    row = int((table - given).norm(dim=-1).argmin())
    assert moved == 0
    assert row == 1
    return {"moved": moved, "padding": row}


@note(
    "Queries are scaled where they are made",
    figures={
        "scale": "one over the root of a head's width",
        "error": "largest error of the scores as plain products of queries and keys",
    },
)
def early_scale(model: StandardizedTransformer) -> dict[str, Any]:
    """`attention_queries` hold the scale already: what `q_proj` returns is multiplied by {scale} before attention is
    called, and scores are plain products, off by {error}. Rebuilding scores as for other families would divide
    twice."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        made = attention.q_proj.output
        queries, keys = attention.attention_queries, attention.attention_keys
        scores = attention.attention_scores

    scale = model.head_dim**-0.5
    assert torch.allclose(made.unflatten(-1, (model.num_heads, -1)).transpose(1, 2) * scale, queries)
    seen = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    error = float((queries @ keys.transpose(-1, -2) - scores)[..., seen].abs().max())
    assert error < 1e-3
    return {"scale": f"{scale:.3f}", "error": error}


@note(
    "The MLP is spread out in its block",
    figures={
        "children": "modules of a block",
        "equal": "blocks in which `fc2` of the neurons is `mlp_output`, bit for bit",
    },
)
def spread_mlp(model: StandardizedTransformer) -> dict[str, Any]:
    """There is no module for the MLP: its two matrices and its activation stand among the block's {children} modules.
    `layers[i].mlp` means them all the same, and in {equal} of {equal} blocks `mlp_output` is what `fc2` makes of
    `mlp_neurons`, in the layout that the name has everywhere: transformers runs it on a row for each token."""
    equal = 0
    ids = [[5, 9, 33], [2, 61, 17]]
    with model.trace(ids):
        for layer in model.layers:
            neurons = layer.mlp.mlp_neurons
            output = layer.mlp.mlp_output
            assert neurons.shape[:2] == output.shape[:2] == (2, 3)
            assert torch.equal(layer.mlp.down_proj.module(neurons.flatten(0, 1)).unflatten(0, (2, 3)), output)
            equal += 1
    children = [name for name, _ in model.layers[0].module.named_children()]
    assert not any("mlp" in name for name in children)
    return {"children": len(children), "equal": equal}


@note(
    "A ReLU leaves most neurons at exactly nothing",
    figures={"silent": "share of neurons that are exactly 0", "negative": "neurons below 0"},
)
def relu_neurons(model: StandardizedTransformer) -> dict[str, Any]:
    """The activation is a ReLU: {silent} of `mlp_neurons` are exactly 0 on this prompt, and {negative} are below. What
    a token takes from an MLP is a sum over the few that are not, and a neuron that is 0 can be left out without any
    approximation."""
    neurons = torch.stack([*model.read([[5, 9, 33, 2, 61, 17, 40, 8]], "mlp_neurons").values()])
    silent, negative = float((neurons == 0).float().mean()), int((neurons < 0).sum())
    assert negative == 0
    assert silent > 0.1
    return {"silent": f"{100 * silent:.0f}%", "negative": negative}


@note(
    "The 350M is wired otherwise",
    figures={
        "before": "values of a layer in the other checkpoints",
        "behind": "values of a layer in the 350M",
        "gone": "what it does not have",
        "width": "width of its embedding, and of its stream",
    },
    on="published configs",
)
def the_odd_one(model: StandardizedTransformer) -> dict[str, Any]:
    """One checkpoint of the family has its norms in the stream, behind each sublayer (`do_layer_norm_before` is false),
    none before the head, and an embedding of {width}. A layer has {behind} values there and {before} elsewhere: {gone}
    are missing, since each sublayer reads the stream as it is."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    found, widths = {}, ""
    for checkpoint in CHECKPOINTS["opt"]:
        one = type(model)(config_of("opt", checkpoint), dispatch=False)
        found[checkpoint.short] = [row.value for row in one.support() if row.available and row.host != "model"]
        if not one.config.do_layer_norm_before:
            widths = f"{one.config.word_embed_proj_dim} numbers in a stream of {one.hidden_size}"
    gone = [value for value in found["opt-125m"] if value not in found["opt-350m"]]
    assert gone == ["attention_norm_output", "mlp_norm_output"]
    return {
        "before": len(found["opt-125m"]),
        "behind": len(found["opt-350m"]),
        "gone": " and ".join(f"`{value}`" for value in gone),
        "width": widths,
    }
