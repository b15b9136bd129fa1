"""Bars of the next-token distribution, before and after an edit."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, width: int) -> str:
    """A bar of `share` of `width` columns, to an eighth of a column."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(width)


def before_and_after(rows: Sequence[tuple[str, float, float]], width: int = 22) -> Table:
    """A row for each token: its label, its probability before, and after."""
    longest = max(max(before, after) for _, before, after in rows)
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    table.add_row("", Text("before", style="dim"), "", Text("after", style="dim"), "")
    for label, before, after in rows:
        table.add_row(
            Text(label, justify="right"),
            Text(bar(before / longest, width), style="cyan"),
            Text(f"{before:.3f}"),
            Text(bar(after / longest, width), style="magenta"),
            Text(f"{after:.3f}"),
        )
    return table
