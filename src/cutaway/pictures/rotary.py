"""The rotary position embedding: what it does to a vector, its tables, and what is left of position in q·k.

Pair `i` of `rotary_dims / 2` turns by `base ** (-2 i / rotary_dims)` radians a position (Su et al. 2021, RoFormer,
section 3.2.2): pair 0 turns fastest, one radian a position, and the last pairs hardly turn at all. Dimensions from
`rotary_dims` on are left as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import InputError, ShapeError
from cutaway.pictures import arrays
from cutaway.pictures.arrays import ArrayLike
from cutaway.pictures.sheet import Sheet
from cutaway.pictures.still import Picture
from cutaway.pictures.theme import Theme, ThemeName, diverging, drawing, theme_of
from cutaway.pictures.ticks import bare, frame, open_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pairing = Literal["half", "interleaved"]
Positions = int | Sequence[int] | NDArray[np.integer]
"""How many positions, counted from 0, or the positions themselves."""

_BASE = 10_000.0
_MOST_CELLS = 4096


def rotated_vector(
    vector: ArrayLike,
    positions: Positions = 8,
    *,
    rotary_dims: int | None = None,
    base: float = _BASE,
    pairs: Sequence[int] | None = None,
    pairing: Pairing = "half",
    title: str = "One vector, rotated at several positions",
    theme: ThemeName = "light",
) -> Picture:
    """One vector at several positions: a panel for each pair of dimensions, an arrow for each position.

    Args:
        vector: `[head_dim]`, one query or key before the rotary.
        positions: how many, from 0, or which.
        rotary_dims: how many dimensions turn, an even number; all of them by default.
        base: the rotary's base.
        pairs: which pairs are shown, at most 8; by default at most four, from the fastest to one that hardly turns.
        pairing: `half` pairs dimension i with i + rotary_dims / 2, as Phi does; `interleaved` pairs 2i with 2i + 1.
        title: what is shown.
        theme: `light` or `dark`.

    Raises:
        ShapeError: the vector has more than one axis, or fewer dimensions than turn.
        InputError: an odd number of dimensions, a pair or a pairing that does not exist, a base that is not above 1.
    """
    look = theme_of(theme)
    values = arrays.with_axes(vector, ("head_dim",), "vector")
    turning = _turning(rotary_dims, len(values))
    where = _positions(positions, most=32)
    shown = _pairs(pairs, turning // 2)
    if pairing not in ("half", "interleaved"):
        raise InputError(f"no pairing is called {pairing!r}; it is 'half' or 'interleaved'")
    speeds = _speeds(turning, base)

    across = min(4, len(shown))
    down = math.ceil(len(shown) / across)
    side, gap, over, left = 1.9, 0.22, 0.42, 0.0
    with drawing(look):
        subtitle = f"each panel: a pair of dimensions; arrows from position {where[0]} (faint) to {where[-1]} (strong)"
        sheet = Sheet(look, across * (side + gap) - gap, down * (side + over + 0.1), title=title, subtitle=subtitle)
        for n, pair in enumerate(shown):
            row, column = divmod(n, across)
            x, y = left + column * (side + gap), row * (side + over + 0.1) + over
            first, second = (pair, pair + turning // 2) if pairing == "half" else (2 * pair, 2 * pair + 1)
            axes = sheet.axes(x, y, side, side)
            _arrows(axes, float(values[first]), float(values[second]), where * speeds[pair], where, look)
            sheet.text(x, y - 0.27, f"pair {pair}", size=8, weight="bold", va="bottom")
            unit = "radian" if speeds[pair] == 1 else "radians"
            detail = f"dimensions {first} and {second}\n{speeds[pair]:.3g} {unit} a position"
            sheet.text(x, y + 0.02, detail, size=6.5, color=look.muted, va="bottom", linespacing=1.4)
    told = ", ".join(f"pair {pair} by {speeds[pair]:.3g}" for pair in shown)
    return sheet.picture(f"A vector at positions {_listed(where)}. Radians a position: {told}.")


def rotary_heatmap(
    positions: Positions = 32,
    rotary_dims: int = 32,
    *,
    base: float = _BASE,
    which: Literal["cos", "sin", "both"] = "both",
    title: str | None = None,
    theme: ThemeName = "light",
) -> Picture:
    """The rotary's tables as heatmaps: cos and sin of the angle, positions down, pairs across.

    Args:
        positions: how many, from 0, or which.
        rotary_dims: how many dimensions turn, an even number; there are half as many pairs.
        base: the rotary's base.
        which: `cos`, `sin` or `both`.
        title: what is shown; by default it names the tables.
        theme: `light` or `dark`.

    Raises:
        InputError: an odd number of dimensions, no position, another table, or a base that is not above 1.
    """
    look = theme_of(theme)
    tables = {"cos": np.cos, "sin": np.sin}
    if which not in (*tables, "both"):
        raise InputError(f"no table is called {which!r}; it is 'cos', 'sin' or 'both'")
    where = _positions(positions, most=_MOST_CELLS)
    angles = where[:, None] * _speeds(_turning(rotary_dims, rotary_dims), base)
    names = list(tables) if which == "both" else [which]

    width = max(1.2, min(4.2, 0.17 * angles.shape[1]))
    height = max(0.6, min(5.0, 0.125 * len(where)))
    left, gap, over = 0.5, 0.3, 0.22
    bar = left + len(names) * (width + gap)
    with drawing(look):
        heading = title or f"The rotary's {' and '.join(names)}, by position and pair"
        subtitle = f"angle = position · {base:g}^(−2·pair/{rotary_dims}); low pairs turn fastest"
        sheet = Sheet(look, bar + 0.35, over + height + 0.4, title=heading, subtitle=subtitle)
        for n, name in enumerate(names):
            x = left + n * (width + gap)
            axes = sheet.axes(x, over, width, height)
            image = axes.imshow(
                tables[name](angles), cmap=diverging(look), vmin=-1, vmax=1, interpolation="nearest", aspect="auto"
            )
            frame(axes, look)
            _numbered(axes, where, angles.shape[1])
            axes.set_xlabel("pair")
            sheet.text(x, over - 0.05, name, size=8, weight="bold", va="bottom")
            if n:
                axes.set_yticklabels([])
            else:
                axes.set_ylabel("position")
                scale = sheet.scale_bar(bar - gap + 0.12, over, min(height, 1.4), image)
                scale.set_yticks([-1, 0, 1], ["−1", "0", "1"])
    told = f"{' and '.join(names)} at {len(where)} positions and {angles.shape[1]} pairs"
    return sheet.picture(f"{told}: pair 0 turns one radian a position, pair {angles.shape[1] - 1} slowest.")


def relative_position_curve(
    distances: Positions = 256,
    *,
    rotary_dims: int = 32,
    base: float = _BASE,
    query: ArrayLike | None = None,
    key: ArrayLike | None = None,
    title: str = "q·k by distance",
    theme: ThemeName = "light",
) -> Picture:
    """q·k of one query and one key, by how far the key lies behind the query.

    The rotary turns both, and their product depends on the distance alone. Pairing is `half`.

    Args:
        distances: how many, from 0, or which, in rising order.
        rotary_dims: how many dimensions turn, an even number.
        base: the rotary's base.
        query: `[head_dim]`, the query before the rotary; all ones over `rotary_dims` by default, so that every pair
            has the same say.
        key: `[head_dim]`, the key before the rotary; by default the query.
        title: what is shown.
        theme: `light` or `dark`.

    Raises:
        ShapeError: query and key differ in length, or have fewer dimensions than turn.
        InputError: an odd number of dimensions, no distance, or a base that is not above 1.
    """
    look = theme_of(theme)
    q = arrays.with_axes(np.ones(rotary_dims) if query is None else query, ("head_dim",), "query").astype(np.float64)
    k = q if key is None else arrays.with_axes(key, ("head_dim",), "key").astype(np.float64)
    if q.shape != k.shape:
        raise ShapeError(f"query has {len(q)} dimensions and key {len(k)}; give two of one head")
    turning = _turning(rotary_dims, len(q))
    where = _positions(distances, most=100_000)
    angles = where[:, None] * _speeds(turning, base)
    half = turning // 2
    q1, q2, k1, k2 = q[:half], q[half:turning], k[:half], k[half:turning]
    still = float(q[turning:] @ k[turning:])
    curve = np.cos(angles) @ (q1 * k1 + q2 * k2) + np.sin(angles) @ (q1 * k2 - q2 * k1) + still

    with drawing(look):
        rest = f"; the other {len(q) - turning} carry no position" if len(q) > turning else ""
        subtitle = f"{turning} dimensions turn, base {base:g}{rest}"
        sheet = Sheet(look, 6.4, 3.1, title=title, subtitle=subtitle)
        axes = sheet.axes(0.5, 0.05, 5.9, 2.6)
        axes.axhline(0, color=look.hairline, linewidth=0.7)
        if len(q) > turning:
            axes.axhline(still, color=look.contrast, linewidth=1, dashes=(4, 3))
            axes.annotate(
                "from the dimensions that do not turn",
                (1, still),
                xycoords=("axes fraction", "data"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="right",
                color=look.contrast,
                fontsize=7,
            )
        axes.plot(where, curve, color=look.accent, marker="o" if len(where) <= 40 else None, markersize=3)
        open_frame(axes)
        axes.margins(x=0.01)
        axes.set_xlabel("distance: position of the query − position of the key")
        axes.set_ylabel("q·k")
    return sheet.picture(
        f"q·k is {curve[0]:.4g} at distance {where[0]} and {curve[-1]:.4g} at {where[-1]}; "
        f"its smallest is {curve.min():.4g}, at distance {where[int(curve.argmin())]}."
    )


def _speeds(rotary_dims: int, base: float) -> NDArray[np.float64]:
    if not (math.isfinite(base) and base > 1):
        raise InputError(f"the rotary's base is {base!r}, and must be a number above 1; Phi's is 10000")
    return base ** (-2 * np.arange(rotary_dims // 2) / rotary_dims)


def _turning(rotary_dims: int | None, head_dim: int) -> int:
    turning = head_dim if rotary_dims is None else rotary_dims
    if turning <= 0 or turning % 2:
        raise InputError(f"{turning} dimensions turn, and they turn in pairs: give an even number above 0")
    if turning > head_dim:
        raise ShapeError(f"the vector has {head_dim} dimensions, and {turning} of them are to turn; give a longer one")
    return turning


def _positions(positions: Positions, most: int) -> NDArray[np.int64]:
    given = np.arange(positions) if isinstance(positions, int) else np.asarray(positions)
    if given.ndim != 1 or not given.size or given.dtype.kind not in "iu":
        raise InputError(f"positions must be a number above 0 or a sequence of whole numbers, and are {positions!r}")
    if given.size > most:
        raise InputError(f"{given.size} positions are more than this picture can show, which is {most}; pick some")
    return given.astype(np.int64)


def _pairs(pairs: Sequence[int] | None, count: int) -> list[int]:
    if pairs is None:
        return sorted({0, count // 8, count // 4, count // 2})
    if not 1 <= len(pairs) <= 8:
        raise InputError(f"{len(pairs)} pairs asked for; a picture shows 1 to 8")
    for pair in pairs:
        if not 0 <= pair < count:
            raise InputError(f"there is no pair {pair}: there are {count}, from 0 to {count - 1}")
    return list(pairs)


def _arrows(
    axes: Axes, x: float, y: float, angles: NDArray[np.float64], positions: NDArray[np.int64], theme: Theme
) -> None:
    from matplotlib.patches import Circle

    length = math.hypot(x, y)
    radius = length or 1.0
    axes.set(xlim=(-1.32 * radius, 1.32 * radius), ylim=(-1.32 * radius, 1.32 * radius), aspect="equal")
    bare(axes)
    axes.spines[:].set_visible(False)
    axes.add_patch(Circle((0, 0), radius, fill=False, color=theme.hairline, linewidth=0.8))
    axes.axhline(0, color=theme.hairline, linewidth=0.5)
    axes.axvline(0, color=theme.hairline, linewidth=0.5)
    taken = list[float]()
    for n, (angle, position) in enumerate(zip(angles, positions, strict=True)):
        tip = (x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle))
        strength = 0.3 + 0.7 * (n + 1) / len(angles)
        arrow = {"arrowstyle": "-|>", "color": theme.accent, "alpha": strength, "linewidth": 1.3, "shrinkA": 0}
        axes.annotate("", tip, (0, 0), arrowprops={**arrow, "shrinkB": 0, "mutation_scale": 7})
        direction = math.atan2(tip[1], tip[0])
        # A label is left out where it would stand on another.
        if all(abs(math.remainder(direction - other, math.tau)) > 0.2 for other in taken):
            taken.append(direction)
            out = 1.17 * radius
            at = (out * math.cos(direction), out * math.sin(direction))
            axes.text(*at, str(position), fontsize=6.5, color=theme.muted, ha="center", va="center")


def _numbered(axes: Axes, positions: NDArray[np.int64], num_pairs: int) -> None:
    rows = _even_steps(len(positions), 9)
    axes.set_yticks(rows, [str(positions[i]) for i in rows])
    axes.set_xticks(_even_steps(num_pairs, 8))
    axes.tick_params(length=0)


def _even_steps(count: int, most: int) -> list[int]:
    step = next(step for step in (1, 2, 4, 5, 8, 16, 32, 64, 128, 256, 512, 1024) if count / step <= most)
    return list(range(0, count, step))


def _listed(positions: NDArray[np.int64]) -> str:
    shown = [str(p) for p in positions]
    return ", ".join(shown) if len(shown) <= 8 else f"{', '.join(shown[:3])}, …, {shown[-1]}"
