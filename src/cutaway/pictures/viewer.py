"""The attention viewer: pick a layer and a head, point at a token, see where it looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cutaway.errors import InputError, ShapeError
from cutaway.pictures import arrays, labels
from cutaway.pictures.arrays import ArrayLike
from cutaway.pictures.attention import may_look, stacked_layers
from cutaway.pictures.labels import Token
from cutaway.pictures.packing import pack
from cutaway.pictures.page import Page, rendered
from cutaway.pictures.theme import THEMES

MOST_TOKENS = 1024
_MOST_BYTES = 12_000_000


def attention_viewer(
    patterns: ArrayLike,
    tokens: Sequence[Token],
    *,
    layer: int = 0,
    head: int = 0,
    title: str = "Attention",
    theme: Literal["auto", "light", "dark"] = "auto",
    most_bytes: int = _MOST_BYTES,
) -> Page:
    """A page on which one picks a layer and a head, points at a token and sees where it looks, and pins it.

    Weights are shown as they are stored, in 256 steps of their square root: to within 0.004. Where the page would grow
    past `most_bytes`, the lightest weights are left out; of more than 1024 tokens the last 1024 are shown. The page's
    `notice` says either.

    Args:
        patterns: `[num_layers num_heads query key]`, or a sequence of one array a layer, `[num_heads query key]`;
            a batch axis of length 1 is dropped. Queries and keys are the same positions.
        tokens: one for each position.
        layer: the layer shown at first; from the end where negative.
        head: the head shown at first; from the end where negative.
        title: what is shown; name the model.
        theme: `light`, `dark`, or `auto`, which follows the reader's system.
        most_bytes: how many bytes the weights may take on the page.

    Raises:
        ShapeError: the rank is another, layers differ in shape, or the patterns do not fit the tokens.
        InputError: they hold something that is no probability, or nothing; there is no such layer, head or theme; or
            the page would be too large.
    """
    if theme not in ("auto", *THEMES):
        raise InputError(f"no theme is called {theme!r}; it is 'auto', 'light' or 'dark'")
    weights = stacked_layers(patterns)
    num_layers, num_heads, num_queries, num_keys = weights.shape
    given = arrays.tokens_for(tokens, num_keys, "keys")
    if num_queries != num_keys:
        raise ShapeError(
            f"the patterns have {num_queries} queries and {num_keys} keys, and the viewer shows the same positions as "
            "both; run the whole prompt at once rather than with a cache, or use `attention_layer`"
        )
    first = (_counted(layer, num_layers, "layer"), _counted(head, num_heads, "head"))
    start = max(0, num_keys - MOST_TOKENS)
    weights, given = weights[..., start:, start:], given[start:]
    packed = pack(weights, most_bytes)
    notice = _notice(start, num_keys, packed.floor)
    shown = [
        {"label": label, "spoken": labels.spoken(token), "ends_line": label.endswith(labels.LINE_END)}
        for label, token in zip(labels.token_labels(given), given, strict=True)
    ]
    data = {
        "labels": [token["label"] for token in shown],
        "offset": start,
        "layers": packed.layers,
        "layer": first[0],
        "head": first[1],
        "causal": not bool(may_look(weights).all()),
        "colours": {name: {"stops": look.sequential, "beyond": look.beyond} for name, look in THEMES.items()},
    }
    html = rendered(
        "attention",
        data,
        title=title,
        theme=theme,
        tokens=shown,
        offset=start,
        num_layers=num_layers,
        num_heads=num_heads,
        first=first,
        notice=notice,
    )
    return Page(html, title=title, notice=notice)


def _counted(index: int, count: int, what: str) -> int:
    if not -count <= index < count:
        raise InputError(f"there is no {what} {index}: there are {count}, from 0 to {count - 1}")
    return index % count


def _notice(start: int, num_keys: int, floor: float) -> str:
    parts = list[str]()
    if start:
        parts.append(
            f"These are the last {MOST_TOKENS} of {num_keys} tokens; what they look at before that is cut off."
        )
    if floor:
        parts.append(f"To keep the page small, weights below {floor:g} are shown as 0.")
    return " ".join(parts)
