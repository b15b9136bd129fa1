"""The attention viewer of a model and a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cutaway.drawing.heads import chosen, patterns_of, telling_head
from cutaway.drawing.tokens import name_of, tokens_of
from cutaway.model import StandardizedTransformer
from cutaway.pictures import Page, attention_viewer


def attention_page(
    model: StandardizedTransformer,
    prompt: str,
    *,
    layer: int | None = None,
    head: int | None = None,
    theme: Literal["auto", "light", "dark"] = "auto",
) -> Page:
    """A page on which one picks a layer and a head and sees where each token of the prompt looks.

    Args:
        model: any model that has `attention_probabilities`.
        prompt: a text.
        layer: the layer shown at first; the most telling one when left out.
        head: the head shown at first, likewise.
        theme: `auto` follows the reader's system.

    Raises:
        InputError: there is no such layer or head, or the prompt is empty.
        UnavailableValueError: the model has no attention patterns.
    """
    patterns = patterns_of(model, prompt)
    first = telling_head(patterns) if layer is None and head is None else chosen(model, prompt, layer, head)
    return attention_viewer(
        patterns,
        tokens_of(model, prompt),
        layer=first.layer,
        head=first.head,
        title=f"Attention of {name_of(model)}",
        theme=theme,
    )


def write_attention_page(
    model: StandardizedTransformer, prompt: str, path: str | Path, *, layer: int | None = None, head: int | None = None
) -> Path:
    """Writes the attention viewer of a prompt to a file, and returns its path; arguments are those of `attention_page`.

    Raises:
        InputError: the name does not end in `.html`.
        OutputError: the file cannot be written.
    """
    return attention_page(model, prompt, layer=layer, head=head).save(path)
