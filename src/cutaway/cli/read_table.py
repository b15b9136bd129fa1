"""The table that `cutaway read` prints."""

from __future__ import annotations

from typing import Any

import torch
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from torch import Tensor

from cutaway.vocabulary import VALUES


class ReadTable:
    """One row a value: path, layout, shape, dtype, and mean, standard deviation, least and greatest entry.

    Where a row would not fit the terminal, the path stands in a line of its own above it, so that it can be copied.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows: dict[str, tuple[str, ...]] = {}
        masked = 0
        for path, value in self._values.items():
            layout = VALUES[path.rpartition(".")[2]].layout.name
            if not isinstance(value, Tensor):
                rows[path] = (layout, str(list(value)))
                continue
            kept = _unmasked(value)
            masked += value.numel() - kept.numel()
            dtype = str(value.dtype).removeprefix("torch.")
            shape = "×".join(map(str, value.shape))
            rows[path] = (layout, shape, dtype, *_figures(kept))
        table = _table("path", "layout")
        for path, cells in rows.items():
            table.add_row(_path(path), *cells)
        if Measurement.get(console, options.update(width=_UNBOUNDED), table).maximum <= options.max_width:
            yield table
        else:
            yield from _stacked(console, options, rows)
        if masked:
            yield Text(f"\nThe figures leave out {masked:,} masked entries.", style="dim")


_UNBOUNDED = 10_000
"""A width that every table fits."""


def _table(*leading: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in (*leading, "shape", "dtype"):
        table.add_column(name, no_wrap=True)
    for figure in ("mean", "std", "min", "max"):
        table.add_column(figure, justify="right", no_wrap=True)
    return table


def _path(path: str) -> Text:
    return Text(path, style="magenta", no_wrap=True, overflow="ignore")


def _stacked(console: Console, options: ConsoleOptions, rows: dict[str, tuple[str, ...]]) -> RenderResult:
    """Each path, and its row below it; a table has no cell that spans columns, so its lines are dealt out."""
    table = _table("layout")
    for cells in rows.values():
        table.add_row(*cells)
    header, *lines = console.render_lines(Padding(table, (0, 0, 0, 2), expand=False), options, pad=False)
    yield from header
    yield Segment.line()
    for path, line in zip(rows, lines, strict=True):
        yield _path(path)
        yield from line
        yield Segment.line()


def _unmasked(value: Tensor) -> Tensor:
    """The entries that no mask has set to minus infinity or to the dtype's minimum."""
    if not value.is_floating_point():
        return value.flatten()
    return value[~(value <= 0.9 * torch.finfo(value.dtype).min)].detach()


def _figures(entries: Tensor) -> tuple[str, ...]:
    if not entries.numel():
        return ("",) * 4
    wide = entries.double()
    return tuple(f"{float(x):.4g}" for x in (wide.mean(), wide.std(correction=0), wide.min(), wide.max()))
