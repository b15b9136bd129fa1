"""Signed values as a heatmap: what a sweep of patches changed, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cutaway.pictures import arrays
from cutaway.pictures.arrays import Array, ArrayLike
from cutaway.pictures.labels import Token
from cutaway.pictures.sheet import Sheet, drawn_labels
from cutaway.pictures.still import Picture
from cutaway.pictures.stream import layer_names_for
from cutaway.pictures.theme import ThemeName, diverging, drawing, readable_on, theme_of
from cutaway.pictures.ticks import TokenTicks, cell_size, frame, named_rows

_WRITTEN_CELL = 0.3


def patching_heatmap(
    effects: ArrayLike,
    columns: Sequence[Token],
    *,
    layer_names: Sequence[str] | None = None,
    measure: str = "change",
    title: str = "Patching sweep",
    theme: ThemeName = "light",
) -> Picture:
    """A sweep of patches: a row a layer, a column a position (or a head), colour the change, with 0 in the middle.

    The scale is even on both sides, so that equal changes up and down are equally strong. In few and large cells the
    numbers are written too.

    Args:
        effects: `[layer column]`, signed, in whatever unit `measure` names.
        columns: what was patched at each column: tokens, or names of heads.
        layer_names: one for each row; by default `layer 0`, `layer 1` and so on.
        measure: what the colour measures, `logit difference` say; written on the scale.
        title: what is shown; name the model and the value that was patched.
        theme: `light` or `dark`.

    Raises:
        ShapeError: the rank is another, or columns or names do not fit.
        InputError: an entry is not finite, or there is none.
    """
    look = theme_of(theme)
    values = arrays.with_axes(effects, ("layer", "column"), "effects")
    num_layers, num_columns = values.shape
    given = arrays.tokens_for(columns, num_columns, "columns")
    names = layer_names_for(layer_names, num_layers)
    cell = cell_size(num_columns, most=0.42, width=6.0)
    row = max(0.13, min(0.26, 5.2 / num_layers))
    ticks = TokenTicks(given, cell)
    left = 0.08 + max(len(name) for name in names) * 0.066
    width, height = num_columns * cell, num_layers * row
    end = float(np.abs(values).max()) or 1.0

    with drawing(look):
        subtitle = "; ".join(filter(None, [f"{measure}; blue below 0, orange above", ticks.notice]))
        total = (left + width + 0.75, height + ticks.room)
        sheet = Sheet(look, *total, title=title, subtitle=subtitle)
        axes = sheet.axes(left, 0, width, height)
        colours = diverging(look)
        image = axes.imshow(values, cmap=colours, vmin=-end, vmax=end, interpolation="nearest", aspect="auto")
        frame(axes, look)
        named_rows(axes, names, row)
        ticks.along_x(axes, look)
        if cell >= _WRITTEN_CELL and row >= 0.17:
            for (layer, column), value in np.ndenumerate(values):
                ink = readable_on(colours((float(value) / end + 1) / 2))
                style: dict[str, Any] = {"fontsize": 6.5, "color": ink, "ha": "center", "va": "center_baseline"}
                axes.text(column, layer, _short(float(value), end), **style)
        sheet.scale_bar(left + width + 0.15, 0, max(0.6, min(height, 1.6)), image)
    return sheet.picture(_in_words(values, names, drawn_labels(given), measure))


def _short(value: float, end: float) -> str:
    decimals = 2 if end < 10 else 1 if end < 100 else 0
    text = f"{value:.{decimals}f}".replace("-", "−")
    if end < 10:
        text = text.replace("0.", ".", 1)
    return "0" if not text.strip("−0.") else text


def _in_words(values: Array, names: list[str], columns: list[str], measure: str) -> str:
    layer, column = np.unravel_index(int(np.abs(values).argmax()), values.shape)
    return (
        f"{measure} from {values.min():.3g} to {values.max():.3g}; the strongest is "
        f"{values[layer, column]:.3g}, at {names[int(layer)]}, column {column} ({columns[int(column)]})."
    )
