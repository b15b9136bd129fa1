"""Colours and type, light and dark, for the still pictures and for the pages alike.

Two scales, both safe for colour-blind readers: probabilities run from paper to one deep blue and only grow darker (on
dark paper, brighter), 0 to 1; signed values run from blue over paper to orange, with 0 in the middle.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cutaway.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True)
class Theme:
    """A set of colours. `beyond` fills what a query may not look at; `sequential` and `diverging` are even stops."""

    name: str
    paper: str
    ink: str
    muted: str
    hairline: str
    beyond: str
    accent: str
    contrast: str
    sequential: tuple[str, ...]
    diverging: tuple[str, ...]


THEMES: dict[str, Theme] = {
    "light": Theme(
        name="light",
        paper="#ffffff",
        ink="#1c2126",
        muted="#5d6670",
        hairline="#d5d9de",
        beyond="#f1f2f3",
        accent="#1f67a8",
        contrast="#c2500f",
        sequential=("#ffffff", "#c3dbef", "#83b5dc", "#4489c1", "#1f5f9e", "#123c70", "#0a1f42"),
        diverging=("#0c3566", "#2f74b3", "#97c0e1", "#fbfbfa", "#f3b184", "#cf651f", "#7d2e04"),
    ),
    "dark": Theme(
        name="dark",
        paper="#15181c",
        ink="#e8eaec",
        muted="#9aa3ad",
        hairline="#363c43",
        beyond="#1e2227",
        accent="#6fb6ea",
        contrast="#f29a5c",
        sequential=("#15181c", "#1b3a57", "#235f91", "#3586c4", "#69b0e2", "#acd8f5", "#f4fbff"),
        diverging=("#c4e4fb", "#5fa8de", "#2a5f8e", "#1d2024", "#8f4c1c", "#e08a48", "#fddcc0"),
    ),
}


def theme_of(name: str) -> Theme:
    """The theme of this name.

    Raises:
        InputError: there is none.
    """
    if name not in THEMES:
        raise InputError(f"no theme is called {name!r}; it is 'light' or 'dark'.{did_you_mean(name, THEMES)}")
    return THEMES[name]


def sequential(theme: Theme) -> Colormap:
    """The colour map of probabilities. What is masked, because a query may not look there, is filled with `beyond`."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list(f"cutaway-sequential-{theme.name}", theme.sequential)
    return colours.with_extremes(bad=theme.beyond)


def diverging(theme: Theme) -> Colormap:
    """The colour map of signed values."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(f"cutaway-diverging-{theme.name}", theme.diverging)


def readable_on(colour: Any) -> str:
    """Black or white, whichever stands out more from this colour (any that matplotlib takes): at least 4.5 to 1."""
    background = _luminance(colour)
    return max(("#000000", "#ffffff"), key=lambda c: _contrast(_luminance(c), background))


def _luminance(colour: Any) -> float:
    """Relative luminance as WCAG 2 defines it."""
    from matplotlib.colors import to_rgb

    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: float, b: float) -> float:
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


# matplotlib's settings are of the whole process: two threads that set and restore them in turn would leave one's
# settings behind.
_SETTINGS = threading.RLock()


@contextmanager
def drawing(theme: Theme) -> Generator[None]:
    """Draw under matplotlib's defaults and this theme, whatever the user has set; their settings are there after."""
    import matplotlib

    with _SETTINGS, matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, setting in _settings(theme).items():
            matplotlib.rcParams[name] = setting  # pyright: ignore[reportArgumentType]
        yield


def _settings(theme: Theme) -> dict[str, Any]:
    return {
        "text.parse_math": False,
        "text.usetex": False,
        "text.color": theme.ink,
        "axes.edgecolor": theme.hairline,
        "axes.facecolor": theme.paper,
        "axes.labelcolor": theme.muted,
        "axes.labelsize": 8,
        "axes.linewidth": 0.7,
        "axes.unicode_minus": True,
        "axes.formatter.use_mathtext": False,
        "figure.facecolor": theme.paper,
        "figure.edgecolor": theme.paper,
        "savefig.facecolor": "auto",
        "font.family": "DejaVu Sans",
        "font.size": 8,
        "xtick.color": theme.hairline,
        "ytick.color": theme.hairline,
        "xtick.labelcolor": theme.muted,
        "ytick.labelcolor": theme.muted,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "xtick.major.width": 0.7,
        "ytick.major.width": 0.7,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "lines.linewidth": 1.5,
        "lines.solid_capstyle": "round",
        "svg.fonttype": "path",
        "svg.hashsalt": "cutaway",
    }
