"""An attention pattern as a heatmap of characters, readable with and without colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

_SHADES = ((0.75, "██"), (0.5, "▓▓"), (0.25, "▒▒"), (0.08, "░░"), (0.0, " ."))
"""From which weight on a cell is drawn how."""


def legend() -> Text:
    """What each shade stands for."""
    text = Text()
    for least, shade in reversed(_SHADES[:-1]):
        text.append(shade, style="magenta").append(f" from {least:g}   ", style="dim")
    return text


def heatmap(pattern: Sequence[Sequence[float]], labels: Sequence[str], named_from: int = 0, width: int = 80) -> Text:
    """Rows are queries, columns are keys, each two characters wide; a causal pattern is a lower triangle.

    Args:
        pattern: `[query key]`.
        labels: what each position is called.
        named_from: from this row on, what the row looks at most is named beside it.
        width: what there is room for; the names beside rows are left out where there is none.
    """
    left = max(map(len, labels))
    room = width - left - 2 * len(labels) - 2
    text = Text(no_wrap=True)
    for line in _stand(labels):
        text.append(" " * (left + 1) + line.rstrip() + "\n", style="dim")
    for query, weights in enumerate(pattern):
        text.append(labels[query].rjust(left) + " ")
        for weight in weights[: query + 1]:
            shade = next(shade for least, shade in _SHADES if weight >= least)
            text.append(shade, style="dim" if shade == _SHADES[-1][1] else "magenta")
        key = max(range(query + 1), key=lambda k: weights[k])
        named = f"→ {labels[key]} {weights[key]:.2f}"
        if query >= named_from and len(named) <= room:
            text.append("  " * (len(labels) - query - 1) + "  ")
            text.append(f"→ {labels[key]} ").append(f"{weights[key]:.2f}", style="dim")
        text.append("\n" if query < len(labels) - 1 else "")
    return text


def _stand(labels: Sequence[str]) -> list[str]:
    """The labels on end, one above each column, all ending at the same line."""
    height = max(map(len, labels))
    stood = [label.rjust(height) for label in labels]
    return ["".join(f" {label[row]}" for label in stood) for row in range(height)]
