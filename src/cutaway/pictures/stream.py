"""The residual stream: how long its vectors are, by layer and position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cutaway.errors import ShapeError
from cutaway.pictures import arrays
from cutaway.pictures.arrays import Array, ArrayLike
from cutaway.pictures.labels import Token
from cutaway.pictures.sheet import Sheet, drawn_labels
from cutaway.pictures.still import Picture
from cutaway.pictures.theme import Theme, ThemeName, drawing, sequential, theme_of
from cutaway.pictures.ticks import TokenTicks, cell_size, frame, named_rows, open_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WHAT = "layer_output"


def stream_norms(
    streams: ArrayLike,
    tokens: Sequence[Token],
    *,
    layer_names: Sequence[str] | None = None,
    title: str = "Norm of the residual stream",
    theme: ThemeName = "light",
) -> Picture:
    """The norm of the residual stream by layer and position, on a logarithmic scale.

    Beside the heatmap stand position 0 and the others as curves: in many models position 0 carries an entry so large
    that a mean over positions tells of it alone.

    Args:
        streams: `[layer seq hidden_size]`, one stream a layer, or a sequence of them, each with a batch axis of
            length 1 or without; or the norms themselves, `[layer seq]`.
        tokens: one for each position.
        layer_names: one for each stream; by default `layer 0`, `layer 1` and so on.
        title: what is shown; name the model.
        theme: `light` or `dark`.

    Raises:
        ShapeError: the rank is another, or tokens or names do not fit.
        InputError: an entry is not finite, or there is none.
    """
    look = theme_of(theme)
    norms = _norms(streams)
    num_layers, num_positions = norms.shape
    given = arrays.tokens_for(tokens, num_positions, "positions")
    names = layer_names_for(layer_names, num_layers)
    cell = cell_size(num_positions, width=4.6)
    row = max(0.13, min(0.24, 3.6 / num_layers))
    ticks = TokenTicks(given, cell)
    width, height = num_positions * cell, num_layers * row
    left = 0.08 + max(len(name) for name in names) * 0.066
    right = left + width

    with drawing(look):
        from matplotlib.colors import LogNorm

        low, high = _limits(norms)
        subtitle = "; ".join(filter(None, ["length of each position's vector, logarithmic", ticks.notice]))
        total = (right + 0.75 + 1.75, height + max(ticks.room, 0.4))
        sheet = Sheet(look, *total, title=title, subtitle=subtitle)
        axes = sheet.axes(left, 0, width, height)
        scale = LogNorm(low, high)
        image = axes.imshow(
            np.clip(norms, low, high), cmap=sequential(look), norm=scale, interpolation="nearest", aspect="auto"
        )
        frame(axes, look)
        named_rows(axes, names, row)
        ticks.along_x(axes, look)
        bar = sheet.scale_bar(right + 0.14, 0, max(0.5, min(height, 1.5)), image)
        bar.minorticks_off()
        bar.set_yticks(*_round_numbers(low, high, most=5))
        _curves(sheet.axes(right + 0.75, 0, 1.7, height), norms, (low, high), look)
    place = np.unravel_index(int(norms.argmax()), norms.shape)
    token = drawn_labels(given)[int(place[1])]
    return sheet.picture(
        f"Norms run from {norms.min():.3g} to {norms.max():.3g}; the largest is at {names[int(place[0])]}, "
        f"position {place[1]} ({token})."
    )


def _norms(streams: ArrayLike) -> Array:
    whole = arrays.as_array(streams, _WHAT)
    if whole.ndim == 2:
        return arrays.with_axes(np.abs(whole), ("layer", "seq"), _WHAT)
    if whole.ndim == 4 and whole.shape[1] == 1:
        whole = whole[:, 0]
    if whole.ndim != 3:
        raise ShapeError(
            f"{_WHAT} has shape {whole.shape}; give one row of the batch, as [layer seq hidden_size], "
            "or norms, as [layer seq]"
        )
    checked = arrays.with_axes(whole, ("layer", "seq", "hidden_size"), _WHAT)
    return np.linalg.norm(checked.astype(np.float64), axis=-1)


def layer_names_for(names: Sequence[str] | None, count: int) -> list[str]:
    """The names given, one for each layer, or else numbers."""
    if names is None:
        return [f"layer {i}" for i in range(count)]
    return arrays.one_each(names, count, "layer_names", "layers")


def _limits(norms: Array) -> tuple[float, float]:
    positive = norms[norms > 0]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (0.1, 1.0)
    return (low, high) if high > low * 1.01 else (low / 2, high * 2)


def _curves(axes: Axes, norms: Array, limits: tuple[float, float], theme: Theme) -> None:
    low, high = limits
    layers = np.arange(len(norms))
    marker = "o" if len(norms) < 12 else None
    if norms.shape[1] > 1:
        others = np.clip(norms[:, 1:], low, high)
        axes.fill_betweenx(layers, others.min(1), others.max(1), color=theme.accent, alpha=0.18, linewidth=0)
        median = np.median(others, axis=1)
        axes.plot(median, layers, color=theme.accent, marker=marker, markersize=2.5, label="the others (median, range)")
    first = np.clip(norms[:, 0], low, high)
    axes.plot(first, layers, color=theme.contrast, marker=marker, markersize=2.5, label="position 0")
    axes.set_xscale("log")
    axes.set_xlim(low / 1.25, high * 1.25)
    axes.set_ylim(len(norms) - 0.5, -0.5)
    axes.set_yticks([])
    axes.minorticks_off()
    axes.set_xticks(*_round_numbers(low, high, most=4))
    axes.set_xlabel("norm")
    open_frame(axes)
    # Beneath the axis: over the curves there may be no room.
    handles, names = axes.get_legend_handles_labels()
    options: dict[str, Any] = {
        "loc": "upper left",
        "bbox_to_anchor": (-0.06, -0.34 / _inches_high(axes)),
        "borderaxespad": 0,
    }
    axes.legend(handles[::-1], names[::-1], frameon=False, fontsize=6.5, handlelength=1.2, labelspacing=0.2, **options)


def _round_numbers(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """At most about `most` round numbers from low to high, and how they are written."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        numbers = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(numbers) <= most:
            break
    else:
        numbers = numbers[:: math.ceil(len(numbers) / most)]
    numbers = numbers or [low, high]
    return numbers, [f"{number:,.0f}" if 1e3 <= number < 1e6 else f"{number:.3g}" for number in numbers]


def _inches_high(axes: Axes) -> float:
    figure = axes.get_figure()
    assert figure is not None
    return axes.get_position().height * float(figure.get_figheight())  # pyright: ignore[reportAttributeAccessIssue]
