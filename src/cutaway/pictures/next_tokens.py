"""The next token's distribution as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cutaway.errors import InputError
from cutaway.pictures import arrays
from cutaway.pictures.arrays import ArrayLike
from cutaway.pictures.labels import Token
from cutaway.pictures.sheet import Sheet, drawn_labels, mono, mono_width
from cutaway.pictures.still import Picture
from cutaway.pictures.theme import ThemeName, drawing, theme_of
from cutaway.pictures.ticks import bare

_ROW = 0.22
_SIZE = 8.0
_BARS = 3.4


def next_token_bars(
    tokens: Sequence[Token],
    probabilities: ArrayLike,
    *,
    most: int = 10,
    prompt: str | bytes | None = None,
    title: str = "Next token",
    theme: ThemeName = "light",
) -> Picture:
    """The likeliest next tokens, a bar each, and underneath how much all others have together.

    Args:
        tokens: the tokens, as many as there are probabilities, in any order: the whole vocabulary or the top of it.
        probabilities: `[vocab_size]` or shorter, one for each token; a batch axis of length 1 is dropped.
        most: how many bars at most.
        prompt: the text before it, whose end is shown.
        title: what is shown; name the model.
        theme: `light` or `dark`.

    Raises:
        ShapeError: tokens and probabilities differ in number.
        InputError: an entry is no probability, they sum to more than 1, there is none, or `most` is below 1.
    """
    look = theme_of(theme)
    what = "next_token_probs"
    weights = arrays.probabilities(arrays.with_axes(probabilities, ("vocab_size",), what, batched=True), what)
    given = arrays.tokens_for(tokens, len(weights), "probabilities")
    if most < 1:
        raise InputError(f"most is {most}; a picture has at least one bar")
    total = float(weights.sum(dtype=np.float64))
    # Half a million roundings to bfloat16 do not add up to 2 % of the whole.
    if total > 1.02:
        raise InputError(f"{what} sum to {total:.4g}, more than 1; give those of one position, after the softmax")
    order = np.argsort(-weights, kind="stable")[:most]
    shown = drawn_labels([given[i] for i in order], 20)
    values = [float(weights[i]) for i in order]
    others = max(0.0, 1 - sum(values))
    left = max(mono_width(label, _SIZE) for label in [*shown, "others"]) + 0.14
    height = (len(shown) + 1) * _ROW + 0.06

    with drawing(look):
        subtitle = f"after {_ending(prompt)}" if prompt is not None else ""
        sheet = Sheet(look, left + _BARS + 0.5, height, title=title, subtitle=subtitle)
        axes = sheet.axes(left, 0, _BARS, height)
        bare(axes)
        axes.spines[:].set_visible(False)
        axes.set(xlim=(0, 1), ylim=(height, 0))
        places = [(i + 0.5) * _ROW for i in range(len(shown))] + [height - _ROW / 2]
        axes.barh(places, [*values, others], _ROW * 0.68, color=[look.accent] * len(values) + [look.hairline])
        axes.axvline(0, color=look.muted, linewidth=0.8)
        for place, value in zip(places, [*values, others], strict=True):
            style: dict[str, Any] = {"fontsize": 7.5, "color": look.muted, "va": "center_baseline"}
            axes.annotate(_percent(value), (value, place), (4, 0), textcoords="offset points", **style)
        for place, label in zip(places, shown, strict=False):
            sheet.text(left - 0.08, place, label, ha="right", va="center_baseline", **mono(_SIZE))
        sheet.text(left - 0.08, places[-1], "others", ha="right", va="center_baseline", size=7.5, color=look.muted)
    told = ", ".join(f"{label} {_percent(value)}" for label, value in zip(shown, values, strict=True))
    return sheet.picture(f"{told}; all others together {_percent(others)}.")


def _ending(prompt: str | bytes, most: int = 48) -> str:
    label = drawn_labels([prompt], 10**9)[0]
    return label if len(label) <= most else f"…{label[1 - most :]}"


def _percent(value: float) -> str:
    if value >= 0.0995:
        return f"{value:.0%}"
    return f"{value:.1%}" if value >= 0.0005 else "<0.1%" if value else "0"
