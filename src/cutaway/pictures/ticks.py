"""Token labels along the sides of a matrix: how large a cell is, which labels fit, and drawing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.pictures.labels import Token
from cutaway.pictures.sheet import drawable, drawn_labels, mono, mono_width
from cutaway.pictures.theme import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

_LARGEST, _SMALLEST = 8.0, 5.5
_STEPS = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 250, 256, 500, 512, 1000)

# A line of type needs this much more than its size to stand clear of the next.
_CLEAR = 1.12

# From the line that letters stand on to the middle of a small letter.
_HALF_LETTER = 0.3


class TokenTicks:
    """Labels for a row of `cell` inches a token: their size, and every how many tokens one is written.

    Where the cells are smaller than the smallest type, only every `step`-th token is labelled, with its position.
    """

    def __init__(self, tokens: Sequence[Token], cell: float) -> None:
        self.size = max(_SMALLEST, min(_LARGEST, cell * 72 / _CLEAR))
        needed = self.size * _CLEAR / 72
        self.step = next((step for step in _STEPS if step * cell >= needed * 0.999), len(tokens))
        texts = drawn_labels(tokens)
        self.positions = list(range(0, len(tokens), self.step))
        if self.step == 1:
            self.texts = texts
        else:
            digits = len(str(self.positions[-1]))
            self.texts = [f"{i:>{digits}} {texts[i]}" for i in self.positions]

    @property
    def room(self) -> float:
        """Inches that the longest label takes, and a little air."""
        return max(mono_width(text, self.size) for text in self.texts) + 0.07

    @property
    def notice(self) -> str:
        """What a subtitle says where not every token is labelled; empty where every one is."""
        return "" if self.step == 1 else f"every {ordinal(self.step)} token is labelled, with its position"

    def along_x(self, axes: Axes, theme: Theme) -> None:
        """Write the labels upright under the columns."""
        style = mono(self.size, color=theme.ink, rotation=90, rotation_mode="anchor", ha="right", va="baseline")
        axes.set_xticks(self.positions, self.texts, **style)
        axes.tick_params(axis="x", length=0, pad=3)
        self._shift(axes.get_xticklabels(), axes, self.size * _HALF_LETTER, 0)

    def along_y(self, axes: Axes, theme: Theme) -> None:
        """Write the labels to the left of the rows."""
        style = mono(self.size, color=theme.ink, ha="right", va="baseline")
        axes.set_yticks(self.positions, self.texts, **style)
        axes.tick_params(axis="y", length=0, pad=3)
        self._shift(axes.get_yticklabels(), axes, 0, -self.size * _HALF_LETTER)

    def _shift(self, texts: Sequence[Text], axes: Axes, x: float, y: float) -> None:
        # matplotlib centres a label by its own outline, so that `_` and `f` would stand on different lines.
        from matplotlib.transforms import ScaledTranslation

        figure = axes.get_figure()
        assert figure is not None
        points = ScaledTranslation(x / 72, y / 72, figure.dpi_scale_trans)
        for text in texts:
            text.set_transform(text.get_transform() + points)


def cell_size(
    count: int, *, most: float = 0.34, width: float = 5.2, least: float = 0.106, widest: float = 9.5
) -> float:
    """Inches of a cell where `count` of them stand in a row.

    Short rows get large cells and long ones fill `width`; then cells shrink to `least`, at which a label still fits,
    and only past `widest` inches further.
    """
    return min(widest / count, max(least, min(most, width / count)))


def frame(axes: Axes, theme: Theme) -> None:
    """A hairline around a matrix."""
    for spine in axes.spines.values():
        spine.set(visible=True, color=theme.hairline, linewidth=0.7)


def open_frame(axes: Axes) -> None:
    """Only the two sides that carry numbers."""
    axes.spines[["top", "right"]].set_visible(False)


def bare(axes: Axes) -> None:
    """No ticks at all."""
    axes.set_xticks([])
    axes.set_yticks([])


def named_rows(axes: Axes, names: Sequence[str], cell: float, *, size: float = 7.5) -> None:
    """Write names to the left of rows of `cell` inches: as many of them as fit, evenly."""
    needed = size * _CLEAR / 72
    step = next((step for step in _STEPS if step * cell >= needed), len(names))
    positions = range(0, len(names), step)
    axes.set_yticks(list(positions), [drawable(names[i]) for i in positions], fontsize=size, parse_math=False)
    axes.tick_params(axis="y", length=0, pad=3)


def ordinal(number: int) -> str:
    """`2nd`, `5th`, `21st`."""
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
