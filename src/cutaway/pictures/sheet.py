"""The sheet a still picture is drawn on: measured in inches from its top left corner, with a title and a margin.

Everything is placed by arithmetic rather than by a layout engine. Token labels are set in a monospaced face, so the
room they need is known before anything is drawn, and pictures of the same kind come out alike.
"""

from __future__ import annotations

import functools
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cutaway.pictures import labels
from cutaway.pictures.labels import Token
from cutaway.pictures.still import Picture
from cutaway.pictures.theme import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

MARGIN = 0.28
LEAST_WIDTH = 4.4
MOST_LETTERS = 16

# Widths of a letter as a part of the type size: exact for the monospaced face, a mean for the other.
_MONO_LETTER = 0.602
_BOLD_LETTER = 0.64
_PLAIN_LETTER = 0.55
_LINE = 1.35

_TITLE_SIZE = 11.0
_SUBTITLE_SIZE = 8.0

# Faces that a reader of Chinese, Japanese or Korean is likely to have. matplotlib brings none of its own.
_MORE_FACES = (
    "Noto Sans Mono CJK SC",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
)


class Sheet:
    """A figure of a given content size, under a title and a line that says more.

    Inside, `left` and `top` are inches from the top left corner of the content: the title and the margins are outside.
    """

    def __init__(self, theme: Theme, width: float, height: float, *, title: str, subtitle: str = "") -> None:
        from matplotlib.figure import Figure

        self.theme = theme
        self.title = drawable(title)
        self.width = max(width, LEAST_WIDTH)
        heading = _wrapped(self.title, self.width, _TITLE_SIZE, _BOLD_LETTER)
        detail = _wrapped(drawable(subtitle), self.width, _SUBTITLE_SIZE, _PLAIN_LETTER)
        below_heading = len(heading) * _TITLE_SIZE * _LINE / 72
        self._head = below_heading + len(detail) * _SUBTITLE_SIZE * _LINE / 72 + 0.16
        self._full = (self.width + 2 * MARGIN, height + self._head + 2 * MARGIN)
        self.figure = Figure(figsize=self._full)
        self.text(0, -self._head, "\n".join(heading), size=_TITLE_SIZE, weight="bold", linespacing=_LINE - 0.15)
        self.text(0, below_heading - self._head + 0.02, "\n".join(detail), size=_SUBTITLE_SIZE, color=theme.muted)

    def axes(self, left: float, top: float, width: float, height: float, **options: Any) -> Axes:
        """Axes in a rectangle of the content."""
        x, y = self._place(left, top + height)
        return self.figure.add_axes((x, y, width / self._full[0], height / self._full[1]), **options)

    def text(self, left: float, top: float, text: str, **options: Any) -> None:
        """Text whose top left corner (or what `ha` and `va` say) is there."""
        x, y = self._place(left, top)
        style: dict[str, Any] = {"ha": "left", "va": "top", **options}
        self.figure.text(x, y, text, **style)

    def scale_bar(self, left: float, top: float, height: float, mappable: ScalarMappable, label: str = "") -> Axes:
        """A slim colour bar, and what it measures written beside it."""
        axes = self.axes(left, top, 0.09, height)
        bar = self.figure.colorbar(mappable, cax=axes)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        axes.tick_params(length=2, width=0.6, labelsize=7, pad=2)
        if label:
            axes.set_ylabel(drawable(label), fontsize=7.5, labelpad=4)
        return axes

    def picture(self, description: str) -> Picture:
        """The finished picture."""
        return Picture(self.figure, title=self.title, description=description, theme=self.theme)

    def _place(self, left: float, top: float) -> tuple[float, float]:
        width, height = self._full
        return (MARGIN + left) / width, 1 - (MARGIN + self._head + top) / height


def _wrapped(text: str, width: float, size: float, letter: float) -> list[str]:
    letters = max(12, int(width * 72 / (size * letter)))
    return [line for given in text.splitlines() for line in textwrap.wrap(given, letters)]


def mono_width(text: str, size: float) -> float:
    """Inches that a label takes in the monospaced face."""
    return sum(1 if ord(c) < 0x1100 else 2 for c in text) * size * _MONO_LETTER / 72


def mono(size: float, **options: Any) -> dict[str, Any]:
    """Text options of a token label."""
    return {"fontsize": size, "fontfamily": list(_faces("DejaVu Sans Mono")), "parse_math": False, **options}


def drawn_labels(tokens: Sequence[Token], most: int = MOST_LETTERS) -> list[str]:
    """Labels as they are drawn: every character in a face at hand, and no label longer than `most` letters."""
    known = _drawn_characters()
    whole = ["".join(_in_face(c, known) for c in labels.token_label(token)) for token in tokens]
    return [label if len(label) <= most else f"{label[: most - 1]}…" for label in whole]


def drawable(text: str) -> str:
    """The text with what no face at hand can draw, and what does not show, written as code points."""
    known = _drawn_characters()
    lines = text.splitlines() or [""]
    return "\n".join("".join(_drawn(c, known) for c in line) for line in lines)


def _drawn(character: str, known: frozenset[int]) -> str:
    if character == " " or unicodedata.category(character) not in labels.INVISIBLE:
        return _in_face(character, known)
    return labels.by_number(character)


def _in_face(character: str, known: frozenset[int]) -> str:
    return character if ord(character) in known else labels.by_number(character)


@functools.cache
def _faces(first: str) -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    installed = {entry.name for entry in fontManager.ttflist}
    return (first, *(face for face in _MORE_FACES if face in installed))


@functools.cache
def _drawn_characters() -> frozenset[int]:
    """Code points that both the faces of titles and the faces of labels can draw."""
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    def characters(face: str) -> set[int]:
        return set(FT2Font(findfont(FontProperties(family=[face]))).get_charmap())

    more = {c for face in _faces("DejaVu Sans Mono")[1:] for c in characters(face)}
    return frozenset((characters("DejaVu Sans") & characters("DejaVu Sans Mono")) | more)
