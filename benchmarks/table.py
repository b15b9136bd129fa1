"""The results as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table


def print_rows(rows: Iterable[dict[str, Any]], console: Console | None = None) -> list[dict[str, Any]]:
    """Prints a table for each workload as soon as it is measured, and returns the rows."""
    console = console or Console(width=110)
    kept = []
    for row in rows:
        console.print(_table(row))
        kept.append(row)
    return kept


def _table(row: dict[str, Any]) -> Table:
    title = f"{row['number']}. {row['title']}: {row['case']}, {row['tokens']} tokens, {row['rounds']} rounds"
    table = Table(title=title, title_justify="left", width=100)
    table.add_column("way", ratio=3)
    for heading in ("median", "quartiles", "to raw hooks", "to Cutaway", "difference"):
        table.add_column(heading, justify="right", ratio=2)
    for name, way in row["ways"].items():
        low, high = way["quartiles_ms"]
        table.add_row(
            name,
            f"{way['median_ms']:.2f} ms",
            f"{low:.2f}–{high:.2f}",
            f"{way['to_raw']:.3f}",
            f"{way['to_cutaway']:.2f}",
            f"{way['difference']:.1g}",
        )
    return table
