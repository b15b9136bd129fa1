"""The code of the demo: each function is run, and its source is what is shown. A docstring is the sentence above it."""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway.model import StandardizedTransformer as Model


def open_the_model(name: str) -> Model:
    """A plain Hugging Face model, opened under standard names. This is what `print(model)` shows of a block:"""
    return Model(name)


def edit(model: Model, prompt: str) -> tuple[Tensor, Tensor]:
    """What would it predict if block 1 had no attention? Zero what that attention adds to the stream, and look:"""
    before = model.read(prompt, "next_token_probs")["next_token_probs"][0]

    with model.trace(prompt):
        model.layers[1].self_attn.attention_output[:] = 0
        after = model.next_token_probs[0]

    return before, after


def add_up(model: Model, prompt: str) -> list[tuple[bool, float]]:
    """Every block adds attention and MLP to the stream. Added in Phi's own order they are its output, bit for bit:"""
    results: list[tuple[bool, float]] = []
    with model.trace(prompt):
        for layer in model.layers:
            stream = layer.layer_input
            attention = layer.self_attn.attention_output
            mlp = layer.mlp.mlp_output
            output = layer.layer_output

            exact = torch.equal(attention + mlp + stream, output)
            error = (stream + attention + mlp - output).abs().max()
            results.append((exact, float(error)))
    return results


def find_induction_head(model: Model) -> tuple[int, int, float]:
    """Which head looks at what came next the last time? In random tokens, said twice, there is nothing else to see:"""
    random = torch.Generator().manual_seed(0)
    once = torch.randint(len(model.tokenizer), (8, 50), generator=random)
    twice = torch.cat([once, once], dim=1)

    scores: list[Tensor] = []
    for pattern in model.read(twice, "attention_probabilities").values():
        one_ahead = pattern.diagonal(-49, dim1=-2, dim2=-1)[..., 1:]
        scores.append(one_ahead.mean(dim=(0, 2)))  # [num_heads]

    best = int(torch.cat(scores).argmax())
    layer, head = divmod(best, model.num_heads)
    return layer, head, float(scores[layer][head])


def read_pattern(model: Model, prompt: str, layer: int, head: int) -> Tensor:
    """The same head on a text. Each row is a token, which looks back at the columns:"""
    with model.trace(prompt):
        attention = model.layers[layer].self_attn
        return attention.attention_probabilities[0, head]


def stop_early(model: Model, prompt: str) -> Tensor:
    """A pass from which nothing more is asked stops where it is:"""
    with model.trace(prompt):
        return model.layers[0].layer_output
