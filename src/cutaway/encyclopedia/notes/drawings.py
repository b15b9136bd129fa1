"""Pictures that belong to a note, drawn from the model that the note ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cutaway import pictures

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer
    from cutaway.pictures import Picture
    from cutaway.pictures.theme import ThemeName

_CODE = "def area(width, height):\n    return width * height\n\nclass Circle:\n    def __init__(self"
_PHRASE = "the quick brown fox saw the quick brown fox"


def norms_by_position(model: StandardizedTransformer, theme: ThemeName) -> Picture:
    """The norm of every block's stream by position."""
    streams = model.read(_CODE, "layer_output")
    stacked = torch.stack([stream[0].float() for stream in streams.values()]).numpy()
    tokens = pictures.token_texts(model.tokenizer, model.tokenizer(_CODE)["input_ids"])
    return pictures.stream_norms(stacked, tokens, theme=theme)


def rotary_dimensions(model: StandardizedTransformer, theme: ThemeName) -> Picture:
    """The cosines by which the rotary's pairs turn, by position."""
    factor = model.config.rope_parameters["partial_rotary_factor"]
    return pictures.rotary_heatmap(32, int(model.head_dim * factor), theme=theme)


def induction_pattern(model: StandardizedTransformer, theme: ThemeName) -> Picture:
    """The pattern, on a phrase that says its words twice, of the head that looks most at what came next."""
    random = torch.Generator().manual_seed(0)
    once = torch.randint(1, model.vocab_size // 2, (4, 40), generator=random)
    patterns = model.read(torch.cat([once, once], dim=1), "attention_probabilities").values()
    scores = torch.stack([pattern.diagonal(-39, dim1=-2, dim2=-1).mean(dim=(0, 2)) for pattern in patterns])
    layer, head = divmod(int(scores.argmax()), model.num_heads)
    path = f"layers.{layer}.self_attn.attention_probabilities"
    pattern = model.read(_PHRASE, path)[path][0, head]
    tokens = pictures.token_texts(model.tokenizer, model.tokenizer(_PHRASE)["input_ids"])
    return pictures.attention_head(pattern, tokens, title=f"Head {head} of block {layer}", theme=theme)
