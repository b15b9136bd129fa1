"""Attention patterns: one head, the heads of a layer, and every head of a model.

A row is a query and says where it looks; a column is a key. What a query may not look at, because it comes later, is
shaded, so that it is told apart from a weight of 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cutaway.pictures import arrays
from cutaway.pictures.arrays import Array, ArrayLike
from cutaway.pictures.labels import Token
from cutaway.pictures.sheet import Sheet, drawn_labels, mono, mono_width
from cutaway.pictures.still import Picture
from cutaway.pictures.theme import Theme, ThemeName, drawing, sequential, theme_of
from cutaway.pictures.ticks import TokenTicks, bare, cell_size, frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_WHAT = "attention_probabilities"
_DRAWN_IN_AN_INCH = 120


def attention_head(
    pattern: ArrayLike,
    tokens: Sequence[Token],
    *,
    key_tokens: Sequence[Token] | None = None,
    title: str = "Attention pattern of one head",
    theme: ThemeName = "light",
) -> Picture:
    """The pattern of one head, tokens along both sides.

    Args:
        pattern: `[query key]`, the probabilities of one head.
        tokens: the tokens of the queries.
        key_tokens: those of the keys, where they are others, as with a cache. By default `tokens`.
        title: what is shown; name the layer and the head.
        theme: `light` or `dark`.

    Raises:
        ShapeError: the pattern is no matrix, or does not fit the tokens.
        InputError: it holds something that is no probability, or nothing.
    """
    look = theme_of(theme)
    weights = arrays.probabilities(arrays.with_axes(pattern, ("query", "key"), _WHAT), _WHAT)
    queries, keys = _sides(weights.shape, tokens, key_tokens)
    cell = cell_size(max(weights.shape))
    rows, columns = TokenTicks(queries, cell), TokenTicks(keys, cell)
    height, width = (n * cell for n in weights.shape)
    left = rows.room + 0.2

    with drawing(look):
        subtitle = _subtitle("each row: where that token looks", rows.notice)
        total = (left + width + 0.62, height + columns.room + 0.28)
        sheet = Sheet(look, *total, title=title, subtitle=subtitle)
        axes = sheet.axes(left, 0, width, height)
        image = _draw(axes, weights, look)
        rows.along_y(axes, look)
        columns.along_x(axes, look)
        axes.set_ylabel("query")
        axes.set_xlabel("key")
        _probability_bar(sheet, left + width + 0.16, min(height, 1.5), image)
    return sheet.picture(_in_words(weights, queries, keys))


def attention_layer(
    patterns: ArrayLike,
    tokens: Sequence[Token],
    *,
    title: str = "Attention patterns of a layer's heads",
    theme: ThemeName = "light",
) -> Picture:
    """The patterns of all heads of one layer, side by side.

    Args:
        patterns: `[num_heads query key]`; a batch axis of length 1 in front is dropped.
        tokens: the tokens of the keys; where there are fewer queries, as with a cache, those are the last of them.
        title: what is shown; name the layer.
        theme: `light` or `dark`.

    Raises:
        ShapeError: the rank is another, or the patterns do not fit the tokens.
        InputError: they hold something that is no probability, or nothing.
    """
    look = theme_of(theme)
    axes_names = ("num_heads", "query", "key")
    weights = arrays.probabilities(arrays.with_axes(patterns, axes_names, _WHAT, batched=True), _WHAT)
    num_heads, *shape = weights.shape
    queries, keys = _sides(weights.shape[1:], tokens, None)
    across = _panels_across(num_heads)
    down = math.ceil(num_heads / across)
    cell = cell_size(max(shape), most=0.3, width=1.6, least=0.104, widest=max(2.5, 9.6 / across - 0.2))
    rows, columns = TokenTicks(queries, cell), TokenTicks(keys, cell)
    height, width = (n * cell for n in shape)
    left, over, gap = rows.room, 0.2, 0.16
    block = _block(shape[1], width)

    with drawing(look):
        total = (
            left + across * (width + gap) + 0.5,
            down * (height + over + gap) - gap + columns.room,
        )
        subtitle = _subtitle("each row: where that token looks", rows.notice, block=block)
        sheet = Sheet(look, *total, title=title, subtitle=subtitle)
        image = None
        for head in range(num_heads):
            row, column = divmod(head, across)
            x, y = left + column * (width + gap), row * (height + over + gap) + over
            axes = sheet.axes(x, y, width, height)
            image = _draw(axes, weights[head], look, block=block)
            bare(axes)
            sheet.text(x, y - 0.04, f"head {head}", size=7.5, color=look.muted, va="bottom")
            if column == 0:
                rows.along_y(axes, look)
            if head + across >= num_heads:
                columns.along_x(axes, look)
        assert image is not None
        _probability_bar(sheet, left + across * (width + gap), min(height, 1.2), image, top=over)
    return sheet.picture(f"{num_heads} heads over {len(keys)} tokens. {_focus(weights)}")


def attention_grid(
    patterns: ArrayLike,
    tokens: Sequence[Token],
    *,
    title: str = "Attention patterns of every head",
    theme: ThemeName = "light",
) -> Picture:
    """The patterns of all heads of all layers, a row a layer. The tokens stand in a line underneath.

    Args:
        patterns: `[num_layers num_heads query key]`, or a sequence of one array a layer, `[num_heads query key]`;
            a batch axis of length 1 is dropped.
        tokens: the tokens of the keys; where there are fewer queries, as with a cache, those are the last of them.
        title: what is shown; name the model.
        theme: `light` or `dark`.

    Raises:
        ShapeError: the rank is another, layers differ in shape, or the patterns do not fit the tokens.
        InputError: they hold something that is no probability, or nothing.
    """
    look = theme_of(theme)
    weights = stacked_layers(patterns)
    num_layers, num_heads, num_queries, num_keys = weights.shape
    _, keys = _sides(weights.shape[2:], tokens, None)
    width = max(0.3, min(1.25, 9.2 / num_heads))
    height = width * min(1.0, max(0.3, num_queries / num_keys))
    block = _block(num_keys, width)
    gap = 0.08 if width > 0.6 else 0.05
    left, over = 0.52, 0.2
    bottom = over + num_layers * (height + gap)
    body = left + num_heads * (width + gap)

    with drawing(look):
        lines = _prompt_lines(drawn_labels(keys), max(body, 3.9) - left)
        size = f"{num_layers} layers × {num_heads} heads"
        subtitle = _subtitle(size, "in each panel a row is a query, a column a key", block=block)
        total = (body + 0.5, bottom + 0.12 + 0.15 * len(lines))
        sheet = Sheet(look, *total, title=title, subtitle=subtitle)
        image = None
        for layer in range(num_layers):
            y = over + layer * (height + gap)
            sheet.text(left - 0.08, y + height / 2, f"layer {layer}", size=7, color=look.muted, ha="right", va="center")
            for head in range(num_heads):
                x = left + head * (width + gap)
                axes = sheet.axes(x, y, width, height)
                image = _draw(axes, weights[layer, head], look, block=block, aspect="auto")
                bare(axes)
                if layer == 0:
                    name = f"head {head}" if width > 0.6 else str(head)
                    sheet.text(x, y - 0.04, name, size=7, color=look.muted, va="bottom")
        assert image is not None
        for i, line in enumerate(lines):
            sheet.text(left, bottom + 0.1 + 0.15 * i, line, color=look.muted, **mono(7))
        _probability_bar(sheet, body + 0.04, min(bottom - over - gap, 1.2), image, top=over)
    return sheet.picture(f"{num_layers} layers of {num_heads} heads over {len(keys)} tokens. {_focus(weights)}")


def stacked_layers(patterns: ArrayLike) -> Array:
    """Patterns as `[num_layers num_heads query key]`; layers may come one by one, with a batch axis of length 1."""
    axes = ("num_layers", "num_heads", "query", "key")
    whole = arrays.as_array(patterns, _WHAT)
    if whole.ndim == 5:
        batch = whole.shape[1] if isinstance(patterns, (list, tuple)) else whole.shape[0]
        if batch == 1:
            whole = whole[:, 0] if isinstance(patterns, (list, tuple)) else whole[0]
    return arrays.probabilities(arrays.with_axes(whole, axes, _WHAT), _WHAT)


def may_look(weights: Array) -> NDArray[np.bool_]:
    """True where a query may look at a key: at itself and what came before, or everywhere where some weight says so."""
    num_queries, num_keys = weights.shape[-2:]
    past = np.tril(np.ones((num_queries, num_keys), bool), num_keys - num_queries)
    somewhere = weights.reshape(-1, num_queries, num_keys).max(0) > 0
    return past if not somewhere[~past].any() else np.ones_like(past)


def _sides(
    shape: tuple[int, ...], tokens: Sequence[Token], key_tokens: Sequence[Token] | None
) -> tuple[list[Token], list[Token]]:
    num_queries, num_keys = shape
    if key_tokens is not None:
        return (
            arrays.tokens_for(tokens, num_queries, "queries"),
            arrays.tokens_for(key_tokens, num_keys, "keys"),
        )
    keys = arrays.tokens_for(tokens, num_keys, "keys")
    if num_queries > num_keys:
        arrays.tokens_for(tokens, num_queries, "queries")
    return keys[num_keys - num_queries :], keys


def _draw(
    axes: Axes, weights: Array, theme: Theme, *, block: int = 1, aspect: Literal["equal", "auto"] = "equal"
) -> AxesImage:
    num_queries, num_keys = weights.shape
    hidden = ~may_look(weights)
    shown = np.ma.masked_array(_heaviest(weights, block), _heaviest(~hidden, block) == 0)
    image = axes.imshow(
        shown,
        cmap=sequential(theme),
        vmin=0,
        vmax=1,
        interpolation="nearest",
        aspect=aspect,
        extent=(-0.5, num_keys - 0.5, num_queries - 0.5, -0.5),
    )
    frame(axes, theme)
    return image


def _block(num_keys: int, inches: float) -> int:
    """Weights to a side of what is drawn as one: more than one where they would be too small to be seen."""
    return max(1, math.ceil(num_keys / (inches * _DRAWN_IN_AN_INCH)))


def _heaviest(weights: NDArray[Any], block: int) -> NDArray[Any]:
    """The largest entry of every `block` × `block`."""
    num_queries, num_keys = weights.shape
    if block == 1:
        return weights
    padded = np.zeros((-(-num_queries // block) * block, -(-num_keys // block) * block), weights.dtype)
    padded[:num_queries, :num_keys] = weights
    return padded.reshape(padded.shape[0] // block, block, padded.shape[1] // block, block).max((1, 3))


def _subtitle(*parts: str, block: int = 1) -> str:
    pooled = "" if block == 1 else f"each point is the heaviest of {block} × {block} weights"
    return "; ".join(part for part in (*parts, pooled) if part)


def _probability_bar(sheet: Sheet, left: float, height: float, image: AxesImage, top: float = 0) -> None:
    axes = sheet.scale_bar(left, top, max(height, 0.5), image)
    axes.set_yticks([0, 0.5, 1] if height > 0.4 else [0, 1], ["0", "½", "1"] if height > 0.4 else ["0", "1"])


def _panels_across(num_heads: int) -> int:
    if num_heads <= 4:
        return num_heads
    return 4 if num_heads <= 16 else 8


def _prompt_lines(labels: list[str], width: float, most: int = 3) -> list[str]:
    lines, line = list[str](), ""
    for label in labels:
        if line and mono_width(line + label, 7) > width:
            lines.append(line)
            line = ""
        line += label
    lines.append(line)
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1][:-1]}…"]


def _in_words(weights: Array, queries: Sequence[Token], keys: Sequence[Token]) -> str:
    rows, columns = drawn_labels(queries), drawn_labels(keys)
    heaviest = weights.argmax(-1)
    told = [
        f"{row} looks most at {columns[int(key)]} ({float(line[key]):.2f})"
        for row, key, line in zip(rows[-12:], heaviest[-12:], weights[-12:], strict=True)
    ]
    return "; ".join(told) + "."


def _focus(weights: Array) -> str:
    means = weights.max(-1).mean(-1)
    best = np.unravel_index(int(means.argmax()), means.shape)
    name = f"head {best[-1]}" if len(best) == 1 else f"layer {best[0]}, head {best[1]}"
    return f"The most focused is {name}: the heaviest weight of a query is {float(means.max()):.2f} in the mean."
