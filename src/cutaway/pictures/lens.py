"""The logit lens as a table: what each layer's stream would say comes next, at each position."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.errors import InputError, ShapeError
from cutaway.pictures import arrays, labels
from cutaway.pictures.arrays import Array, ArrayLike
from cutaway.pictures.labels import Token
from cutaway.pictures.sheet import Sheet, drawn_labels, mono
from cutaway.pictures.still import Picture
from cutaway.pictures.stream import layer_names_for
from cutaway.pictures.theme import Theme, ThemeName, drawing, readable_on, sequential, theme_of

MOST_POSITIONS = 60
_ACROSS = 12
_LETTERS = 9
_CELL = (0.7, 0.215)
_GAP = 0.22


def lens_table(
    top_tokens: Sequence[Sequence[Token]],
    probabilities: ArrayLike,
    tokens: Sequence[Token],
    *,
    layer_names: Sequence[str] | None = None,
    title: str = "Logit lens",
    theme: ThemeName = "light",
) -> Picture:
    """The logit lens: a row a layer, a column a position, in each cell the likeliest next token.

    A cell's colour is that token's probability. It is set bold where it is the token that does come next. A long
    prompt runs on in further bands of 12 positions; of more than 60 the last 60 are shown, and the picture says so.

    Args:
        top_tokens: `[layer seq]`, the likeliest token at each place, as its text.
        probabilities: `[layer seq]`, its probability.
        tokens: one for each position, the prompt.
        layer_names: one for each layer; by default `layer 0`, `layer 1` and so on.
        title: what is shown; name the model.
        theme: `light` or `dark`.

    Raises:
        ShapeError: the three do not fit each other.
        InputError: an entry is no probability, or there is none.
    """
    look = theme_of(theme)
    what = "probabilities"
    weights = arrays.probabilities(arrays.with_axes(probabilities, ("layer", "seq"), what), what)
    num_layers, num_positions = weights.shape
    given = arrays.tokens_for(tokens, num_positions, "positions")
    rows = _rows(top_tokens, num_layers, num_positions)
    names = layer_names_for(layer_names, num_layers)
    start = max(0, num_positions - MOST_POSITIONS)
    bands = [range(i, min(i + _ACROSS, num_positions)) for i in range(start, num_positions, _ACROSS)]

    cell_width, cell_height = _CELL
    left = 0.1 + max(len(name) for name in names) * 0.064
    band_height = (num_layers + 1) * cell_height + 0.05
    with drawing(look):
        from matplotlib.cm import ScalarMappable

        thinned = f"the last {MOST_POSITIONS} of {num_positions} positions" if start else ""
        subtitle = "; ".join(
            filter(None, ["top row: the prompt", "cells: the likeliest next token, bold where it comes", thinned])
        )
        across = left + len(bands[0]) * cell_width
        total = (across + 0.5, len(bands) * (band_height + _GAP) - _GAP)
        sheet = Sheet(look, *total, title=title, subtitle=subtitle)
        colours = sequential(look)
        for n, band in enumerate(bands):
            top = n * (band_height + _GAP)
            _band(sheet, (left, top), band, given, rows, weights, names, look)
        image = ScalarMappable(cmap=colours)
        image.set_clim(0, 1)
        height = min(num_layers * cell_height, 1.3)
        bar = sheet.scale_bar(across + 0.14, cell_height + 0.05, height, image)
        bar.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    last = [
        f"{name}: {drawn_labels([row[-1]])[0]} ({p:.2f})"
        for name, row, p in zip(names, rows, weights[:, -1], strict=True)
    ]
    return sheet.picture(f"At the last position, {'; '.join(last)}.")


def _rows(top_tokens: Sequence[Sequence[Token]], num_layers: int, num_positions: int) -> list[list[Token]]:
    if isinstance(top_tokens, (str, bytes)):
        raise InputError("top_tokens must be one sequence of tokens a layer, and is one string")
    rows = [list(row) for row in top_tokens]
    lengths = sorted({len(row) for row in rows})
    if len(rows) != num_layers or lengths != [num_positions]:
        raise ShapeError(
            f"top_tokens has {len(rows)} layers of {' or '.join(map(str, lengths)) or 'no'} positions, and "
            f"probabilities has shape ({num_layers}, {num_positions}); give one token for each probability"
        )
    return [arrays.tokens_for(row, num_positions, "positions") for row in rows]


def _band(
    sheet: Sheet,
    corner: tuple[float, float],
    band: range,
    tokens: list[Token],
    rows: list[list[Token]],
    weights: Array,
    names: list[str],
    theme: Theme,
) -> None:
    left, top = corner
    cell_width, cell_height = _CELL
    width, height = len(band) * cell_width, len(rows) * cell_height
    table = weights[:, band.start : band.stop]
    axes = sheet.axes(left, top + cell_height + 0.05, width, height)
    colours = sequential(theme)
    axes.imshow(table, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_xticks([i - 0.5 for i in range(1, len(band))], [])
    axes.set_yticks([i - 0.5 for i in range(1, len(rows))], [])
    axes.grid(color=theme.paper, linewidth=1.2)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    prompt = drawn_labels([tokens[i] for i in band], _LETTERS)
    for column, label in enumerate(prompt):
        x, y = left + (column + 0.5) * cell_width, top + cell_height + 0.01
        sheet.text(x, y, label, ha="center", **mono(7.5, color=theme.ink, va="bottom"))
    for layer, row in enumerate(rows):
        y = top + 0.05 + (layer + 1.5) * cell_height
        sheet.text(left - 0.1, y, names[layer], size=7.5, color=theme.muted, ha="right", va="center_baseline")
        shown = drawn_labels([row[i] for i in band], _LETTERS)
        for column, position in enumerate(band):
            follows = position + 1 < len(tokens) and _same(row[position], tokens[position + 1])
            ink = readable_on(colours(float(weights[layer, position])))
            style = mono(7.5, color=ink, weight="bold" if follows else "normal", ha="center", va="center_baseline")
            axes.text(column, layer, shown[column], **style)


def _same(a: Token, b: Token) -> bool:
    return labels.token_label(a) == labels.token_label(b)
