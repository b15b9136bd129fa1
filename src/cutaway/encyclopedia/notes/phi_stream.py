"""Phi's residual stream, and what the head makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import Reported, note
from cutaway.encyclopedia.notes.drawings import induction_pattern, norms_by_position

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Position 0 is not like the others",
    figures={
        "block": "block looked at, halfway",
        "dimension": "dimension of position 0's largest entry",
        "entry": "that entry",
        "elsewhere": "largest entry at any other position",
        "norm": "norm at position 0",
        "median": "median norm of the others",
    },
    reported=(
        Reported("entry", "about −790, at block 16, dimension 743", "phi-2"),
        Reported("elsewhere", "17 at most", "phi-2, the same block"),
        Reported("entry", "−684, at block 12, dimension 725", "phi-1.5"),
        Reported("elsewhere", "19 at most", "phi-1.5, the same block"),
    ),
    picture=norms_by_position,
)
def position_zero(model: StandardizedTransformer) -> dict[str, Any]:
    """The tokenizer puts nothing in front, so position 0 holds the prompt's own first token, and that token can look at
    nothing but itself. The large checkpoints make it a place to park attention, with one entry that dwarfs all
    others. A small model may do no such thing and still set it apart: in {model} its largest entry is {entry}, against
    {elsewhere} elsewhere, and its norm {norm}, against a median of {median}. Leave position 0 out of norms and of
    means over positions, or it may be all you will see."""
    prompt = "def area(width, height):\n    return width * height\n\nclass Circle:\n    def __init__(self"
    block = model.num_layers // 2
    with model.trace(prompt):
        first, *others = model.layers[block].layer_output[0].float()

    entry = int(first.abs().argmax())
    norms = torch.stack(others).norm(dim=-1)
    assert first.norm() > norms.median()
    return {
        "block": block,
        "dimension": entry,
        "entry": float(first[entry]),
        "elsewhere": float(torch.stack(others).abs().max()),
        "norm": float(first.norm()),
        "median": float(norms.median()),
    }


@note(
    "Every lens readout carries the same constant",
    figures={
        "error": "largest error of constant + bias-free readout against the lens, over all blocks",
        "constant": "standard deviation of the constant, in logits",
        "readout": "standard deviation of a whole readout, halfway",
        "bias": "standard deviation of `lm_head.bias` alone",
        "tokens": "the tokens it favours",
    },
    reported=(
        Reported("constant", "0.33", "phi-2"),
        Reported("readout", "2.3", "phi-2, block 16"),
        Reported("bias", "0.04", "phi-2"),
        Reported("tokens", "newline, '-', '.', double newline and ','", "phi-2"),
    ),
)
def constant_lens(model: StandardizedTransformer) -> dict[str, Any]:
    """The final norm has a bias and so has the head. Whatever stream goes in,
    `lm_head.weight @ norm.bias + lm_head.bias` comes out on top, the same at every block and for every prompt. In
    {model} it favours {tokens}. Take it off before you read meaning into the tokens that a lens puts first in a
    middle layer."""
    norm, head = model.norm, model.lm_head
    streams = model.read("for index, item in enumerate(items):\n    if item", "layer_output")

    constant = head.weight @ norm.bias + head.bias
    error = 0.0
    for stream in streams.values():
        whole = model.project_on_vocab(stream)
        without = (norm.module(stream) - norm.bias) @ head.weight.T
        error = max(error, float((whole - without - constant).abs().max()))

    middle = model.project_on_vocab(list(streams.values())[model.num_layers // 2])
    assert error < 8 * torch.finfo(middle.dtype).eps * float(middle.abs().max())
    favoured = [f"`{model.tokenizer.decode([token])!r}`" for token in constant.topk(5).indices.tolist()]
    return {
        "error": error,
        "constant": float(constant.std()),
        "readout": float(middle.std()),
        "bias": float(head.bias.std()),
        "tokens": favoured,
    }


@note(
    "A head that completes what it has seen",
    figures={
        "place": "the head",
        "score": "share of its attention that falls one after the previous occurrence",
        "chance": "what it would be if attention were even",
    },
    picture=induction_pattern,
)
def induction_head(model: StandardizedTransformer) -> dict[str, Any]:
    """Give {model} random tokens and say them twice. The second time round there is nothing to go by but the first,
    and one head does go by it: {place} puts {score} of its attention on the token that came next the last
    time, where even attention would put {chance}. The picture shows the same head on a phrase."""
    random = torch.Generator().manual_seed(0)
    once = torch.randint(1, model.vocab_size // 2, (4, 40), generator=random)
    twice = torch.cat([once, once], dim=1).to(model.device)

    scores = []
    for pattern in model.read(twice, "attention_probabilities").values():
        one_ahead = pattern.diagonal(-39, dim1=-2, dim2=-1)[..., 1:]
        scores.append(one_ahead.float().mean(dim=(0, 2)))  # [num_heads]

    best = torch.stack(scores)
    layer, head = divmod(int(best.argmax()), model.num_heads)
    chance = float((1 / torch.arange(41.0, 81.0)).mean())
    assert best.max() > 5 * chance
    return {"place": f"head {head} of block {layer}", "score": float(best.max()), "chance": chance}
