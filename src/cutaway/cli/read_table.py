"""The figures that `cutaway read` prints, and their table in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from torch import Tensor

from cutaway.vocabulary import VALUES, Layout


@dataclass(frozen=True)
class ReadRow:
    """One value.

    Attributes:
        path: `layers.1.mlp.mlp_output`.
        layout: its layout; None of what is read by a module's path.
        shape: its shape; empty where it is no tensor.
        dtype: of a tensor.
        figures: mean, standard deviation, least and greatest entry; empty where there are none.
        masked: how many entries the figures leave out, since a mask has set them to the dtype's least number.
        value: what is no tensor, in full.
    """

    path: str
    layout: Layout | None
    shape: tuple[int, ...]
    dtype: str
    figures: tuple[float, ...]
    masked: int
    value: Any = None

    def cells(self) -> tuple[str, ...]:
        """All but the path, as they are shown."""
        name = self.layout.name if self.layout else "-"
        if not self.dtype:
            return (name, str(self.value), *("",) * (1 + _FIGURES))
        figures = tuple(f"{figure:.4g}" for figure in self.figures) or ("",) * _FIGURES
        return (name, "×".join(map(str, self.shape)), self.dtype, *figures)

    def to_dict(self) -> dict[str, Any]:
        """As data: `path`, `layout`, `axes`, `shape`, `dtype`, `mean`, `std`, `min`, `max`, `masked` and `value`."""
        mean, std, least, greatest = self.figures or (None,) * _FIGURES
        return {
            "path": self.path,
            "layout": self.layout.name if self.layout else None,
            "axes": list(self.layout.axes) if self.layout else None,
            "shape": list(self.shape) if self.dtype else None,
            "dtype": self.dtype or None,
            "mean": mean,
            "std": std,
            "min": least,
            "max": greatest,
            "masked": self.masked,
            "value": self.value,
        }


_FIGURES = 4


def rows_of(values: Mapping[str, Any]) -> list[ReadRow]:
    """A row for each value, in their order."""
    return [_row(path, value) for path, value in flattened(values).items()]


def told_of_masked(rows: Sequence[ReadRow]) -> list[str]:
    """What is to be said below the table."""
    masked = sum(row.masked for row in rows)
    return [f"The figures leave out {masked:,} masked entries."] if masked else []


class ReadTable:
    """One row a value: path, layout, shape, dtype, and mean, standard deviation, least and greatest entry.

    Where a row would not fit the terminal, the path stands in a line of its own above it, so that it can be copied.
    """

    def __init__(self, rows: Sequence[ReadRow]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = _table("path", "layout")
        for row in self._rows:
            table.add_row(_path(row.path), *row.cells())
        if Measurement.get(console, options.update(width=_UNBOUNDED), table).maximum <= options.max_width:
            yield table
        else:
            yield from _stacked(console, options, self._rows)
        for sentence in told_of_masked(self._rows):
            yield Text(f"\n{sentence}", style="dim")


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


def _stacked(console: Console, options: ConsoleOptions, rows: Sequence[ReadRow]) -> RenderResult:
    """Each path, and its row below it; a table has no cell that spans columns, so its lines are dealt out."""
    table = _table("layout")
    for row in rows:
        table.add_row(*row.cells())
    padded = Padding(table, (0, 0, 0, 2), expand=False)
    needed = Measurement.get(console, options.update(width=_UNBOUNDED), padded).maximum
    # A terminal that is narrower still breaks the lines itself: no figure is cut.
    header, *lines = console.render_lines(padded, options.update(width=max(needed, options.max_width)), pad=False)
    yield from header
    yield Segment.line()
    for row, line in zip(rows, lines, strict=True):
        yield _path(row.path)
        yield from line
        yield Segment.line()


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with tuples and mappings that hold tensors taken apart: `inputs` is `inputs.0`, `inputs.1`, …"""
    flat: dict[str, Any] = {}
    for path, value in values.items():
        parts: Mapping[Any, Any] | None = None
        if isinstance(value, Mapping):
            parts = value
        elif isinstance(value, (tuple, list)) and not all(isinstance(part, (int, float)) for part in value):
            parts = dict(enumerate(value))
        if parts is None:
            flat[path] = value
        else:
            flat.update(flattened({f"{path}.{key}": part for key, part in parts.items()}))
    return flat


def _row(path: str, value: Any) -> ReadRow:
    known = VALUES.get(path.rpartition(".")[2])
    layout = known.layout if known else None
    if not isinstance(value, Tensor):
        plain = list(value) if isinstance(value, (tuple, list)) else value
        if not isinstance(plain, (list, bool, int, float, str, type(None))):
            plain = f"a {type(value).__name__}"
        return ReadRow(path, layout, (), "", (), 0, plain)
    kept = _unmasked(value)
    dtype = str(value.dtype).removeprefix("torch.")
    return ReadRow(path, layout, tuple(value.shape), dtype, _figures(kept), value.numel() - kept.numel())


def _unmasked(value: Tensor) -> Tensor:
    """The entries that no mask has set to minus infinity or to the dtype's minimum."""
    if not value.is_floating_point():
        return value.flatten()
    return value[~(value <= 0.9 * torch.finfo(value.dtype).min)].detach()


def _figures(entries: Tensor) -> tuple[float, ...]:
    if not entries.numel():
        return ()
    wide = entries.double()
    return tuple(float(x) for x in (wide.mean(), wide.std(correction=0), wide.min(), wide.max()))
