"""A sheet of SVG: wires below, parts above. Colours and type are the page's style; here are places alone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.part import Part
from cutaway.encyclopedia.parts import Parts, variant

LETTER = 6.65
"""Width of a letter of a name, at its size of 11."""

SMALL = 6.05
"""Width of a letter of a value's name, at its size of 10."""

Point = tuple[float, float]


class Canvas:
    """Collects shapes, and gives them as one SVG.

    Attributes:
        drawn: the keys of the parts that are drawn.
    """

    def __init__(self, parts: Parts, page: str = "") -> None:
        self._parts = parts
        self._page = page
        self._kind: LayerKind | None = None
        self._present: frozenset[str] = frozenset()
        self.drawn: set[str] = set()
        self._sheets: list[str] = []
        self._frames: list[str] = []
        self._wires: list[str] = []
        self._shapes: list[str] = []

    def enter(self, kind: LayerKind, present: frozenset[str]) -> None:
        """From here on parts are those of a kind of layer, which has these and no others."""
        self._kind, self._present = kind, present

    def leave(self) -> None:
        """From here on parts are those around the layers again."""
        self._kind = None

    def part(self, key: str) -> Part:
        """The part of this key, as it is in the kind of layer that is drawn."""
        own = key if self._kind is None else variant(key, self._kind)
        return self._parts.get(own) or self._parts[key]

    def has(self, key: str) -> bool:
        """Whether what is drawn has such a part."""
        if self._kind is not None:
            return key in self._present
        return key in self._parts and not self._parts[key].missing

    def wire(self, *points: Point, arrow: bool = False, kind: str = "") -> None:
        """A line through these points, with rounded corners, and an arrow where it ends at a part."""
        head = "arrow-stream" if kind == "stream" else "arrow"
        marker = f' marker-end="url(#{head})"' if arrow else ""
        self._wires.append(f'<path class="wire {kind}" d="{_rounded(points)}"{marker}/>')

    def sheet(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A rectangle behind all parts and wires, and before the sheets that came earlier."""
        self._sheets.append(_rect(x, y, width, height, 14, f"sheet {kind}"))

    def caption(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """Words that are no part."""
        self._shapes.append(_text(x, y, text, f"caption {kind}", anchor))

    def container(self, key: str, x: float, y: float, width: float, height: float) -> None:
        """A module that holds others, its name in the corner; a frame without one, where it is spread out in its
        layer."""
        if not self.has(key):
            self._frames.append(_rect(x, y, width, height, 10, "container spread"))
            self.caption(x + 12, y + 19, f"{key.partition('.')[2]}, in the layer itself")
            return
        self._frames.append(_rect(x, y, width, height, 10, "container"))
        part = self.part(key)
        inner = _text(x + 12, y + 19, _label(part), "name", "start")
        length = len(_label(part)) * LETTER + 16
        self._part(part, _rect(x + 4, y + 5, length, 20, 5, "hit") + inner)

    def title(self, key: str, x: float, y: float, text: str) -> None:
        """A module that is drawn as the sheet around its parts: its title, at the end of a line."""
        width = len(text) * 7.3 + 12
        inner = _text(x, y, text, "title", "end")
        self._part(self.part(key), _rect(x - width + 6, y - 14, width, 20, 5, "hit") + inner, text)

    def box(self, key: str, x: float, y: float, width: float = 0, height: float = 26) -> None:
        """A module around a centre; one that is not there is left out."""
        if not self.has(key):
            return
        part = self.part(key)
        width = width or width_of(part.name)
        shape = _rect(x - width / 2, y - height / 2, width, height, 6, "box")
        self._part(part, shape + _text(x, y + 3.8, _label(part), "name"))

    def pill(self, key: str, x: float, y: float) -> None:
        """A value around a centre, on the wire that carries it; one that this checkpoint lacks is left out."""
        if not self.has(key):
            return
        width = width_of_value(key)
        shape = _rect(x - width / 2, y - 9, width, 18, 9, "pill")
        self._part(self.part(key), shape + _text(x, y + 3.4, key, "value"))

    def tap(self, key: str, x: float, y: float) -> None:
        """A value on an upright wire: a dot, and its name to the right."""
        if not self.has(key):
            return
        width = width_of_value(key)
        dot = f'<circle class="dot" cx="{x:g}" cy="{y:g}" r="4"/>'
        stem = f'<path class="stem" d="M{x + 4:g} {y:g}H{x + 14:g}"/>'
        shape = _rect(x + 14, y - 9, width, 18, 9, "pill")
        self._part(self.part(key), stem + dot + shape + _text(x + 14 + width / 2, y + 3.4, key, "value"))

    def operation(self, key: str, x: float, y: float, symbol: str, width: float = 22) -> None:
        """An operation around a centre: a circle, or where its word needs room, a long one; none that is not there."""
        if not self.has(key):
            return
        shape = _rect(x - width / 2, y - 11, width, 22, 11, "bubble")
        kind = "symbol" if len(symbol) == 1 else "word"
        inner = _text(x, y + (4.8 if len(symbol) == 1 else 3.5), symbol, kind)
        self._part(self.part(key), shape + inner, symbol if len(symbol) > 1 else "")

    def junction(self, x: float, y: float, symbol: str) -> None:
        """An operation that is no part."""
        self._shapes.append(_rect(x - 11, y - 11, 22, 22, 11, "bubble") + _text(x, y + 4.8, symbol, "symbol"))

    def svg(self, width: float, height: float, title: str, description: str) -> str:
        """The sheet, with a title and a description for a reader who does not see it."""
        kind = "narrow" if width < 450 else "wide"
        body = "\n".join((*self._sheets, *self._frames, *self._wires, *self._shapes))
        return (
            f'<svg class="diagram {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
            f'role="group" aria-labelledby="diagram-title diagram-text" xmlns="http://www.w3.org/2000/svg">\n'
            f'<title id="diagram-title">{escape(title)}</title>\n<desc id="diagram-text">{escape(description)}</desc>\n'
            f"<defs>{_arrow('arrow', 7)}{_arrow('arrow-stream', 11)}</defs>\n"
            f"{body}\n</svg>"
        )

    def _part(self, part: Part, shapes: str, written: str = "") -> None:
        self.drawn.add(part.key)
        label = escape(f"{written or part.name}, {part.kind}", quote=True)
        self._shapes.append(
            f'<a class="part {part.kind}" href="{self._page}#part-{escape(part.key)}" data-part="{escape(part.key)}" '
            f'aria-label="{label}">{shapes}</a>'
        )


def width_of(name: str) -> float:
    """How wide a module's box is."""
    return max(64, len(name) * LETTER + 16)


def width_of_value(name: str) -> float:
    """How wide a value's pill is."""
    return len(name) * SMALL + 14


def _arrow(name: str, size: int) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="{size}" markerHeight="{size}" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="head {name}" d="M0.5 0.8L7 4L0.5 7.2Z"/></marker>'
    )


def _label(part: Part) -> str:
    return part.name


def _rect(x: float, y: float, width: float, height: float, radius: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:.4g}" height="{height:g}" rx="{radius:g}"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _rounded(points: Sequence[Point], radius: float = 8) -> str:
    """A path along upright and level stretches, its corners rounded."""
    (x, y), *rest = points
    path = f"M{x:g} {y:g}"
    for i, (cx, cy) in enumerate(rest):
        if i == len(rest) - 1:
            return f"{path}L{cx:g} {cy:g}"
        nx, ny = rest[i + 1]
        before = min(radius, (abs(cx - x) + abs(cy - y)) / 2)
        after = min(radius, (abs(nx - cx) + abs(ny - cy)) / 2)
        r = min(before, after)
        in_x, in_y = cx - r * _sign(cx - x), cy - r * _sign(cy - y)
        out_x, out_y = cx + r * _sign(nx - cx), cy + r * _sign(ny - cy)
        path += f"L{in_x:g} {in_y:g}Q{cx:g} {cy:g} {out_x:g} {out_y:g}"
        x, y = cx, cy
    return path


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
