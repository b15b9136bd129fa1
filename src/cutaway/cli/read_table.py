"""The table that `cutaway read` prints."""

from __future__ import annotations

from typing import Any

import torch
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text
from torch import Tensor

from cutaway.vocabulary import VALUES


class ReadTable:
    """One row a value: path, layout, shape, dtype, and mean, standard deviation, least and greatest entry."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        table.add_column("path", overflow="fold")
        table.add_column("layout")
        table.add_column("shape", overflow="fold")
        table.add_column("dtype")
        for figure in ("mean", "std", "min", "max"):
            table.add_column(figure, justify="right", no_wrap=True)
        masked = 0
        for path, value in self._values.items():
            layout = VALUES[path.rpartition(".")[2]].layout.name
            if not isinstance(value, Tensor):
                table.add_row(Text(path, style="magenta"), layout, str(list(value)), "")
                continue
            kept = _unmasked(value)
            masked += value.numel() - kept.numel()
            dtype = str(value.dtype).removeprefix("torch.")
            shape = "×".join(map(str, value.shape))
            table.add_row(Text(path, style="magenta"), layout, shape, dtype, *_figures(kept))
        yield table
        if masked:
            yield Text(f"\nThe figures leave out {masked:,} masked entries.", style="dim")


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
