"""The curves as small SVG pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW

COLOURS = {
    "whole forward": "#b0b0b0",
    RAW: "#767676",
    CUTAWAY: "#0b6bcb",
    NNSIGHT: "#c2410c",
    LENS: "#15803d",
}
MARKS = {"whole forward": "", RAW: "s", CUTAWAY: "o", NNSIGHT: "^", LENS: "D"}


def draw(curves: list[dict[str, Any]], folder: Path) -> None:
    """Writes `performance-NAME.svg` for each curve."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    style = {"svg.hashsalt": "cutaway", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}
    with plt.rc_context(style):
        for curve in curves:
            figure, axes = plt.subplots(figsize=(4.6, 3.0), layout="constrained")
            for way, points in curve["lines"].items():
                places = [point["at"] for point in points]
                low, high = zip(*(point["quartiles_ms"] for point in points), strict=True)
                axes.plot(
                    places,
                    [point["median_ms"] for point in points],
                    color=COLOURS[way],
                    marker=MARKS[way],
                    markersize=3.5,
                    linewidth=1.3,
                    label=way,
                )
                axes.fill_between(places, low, high, color=COLOURS[way], alpha=0.15, linewidth=0)
            axes.set_xlabel(curve["axis"])
            axes.set_ylabel("milliseconds")
            axes.set_ylim(bottom=0)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=8)
            figure.savefig(folder / f"performance-{curve['name']}.svg", metadata={"Date": None})
            plt.close(figure)
