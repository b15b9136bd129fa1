"""A support in a terminal and as plain text: one row a value, and below, the notes that rows refer to."""

from __future__ import annotations

import io
import re
import shutil
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from cutaway.inspection.numbers import ranges
from cutaway.inspection.printout.terminal_tree import STYLES
from cutaway.vocabulary import HOSTS, Host

if TYPE_CHECKING:
    from cutaway.inspection.rows import SupportRow, SupportRows


class SupportTable:
    """A support for rich's consoles."""

    def __init__(self, support: SupportRows) -> None:
        self._support = support

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        support = self._support
        notes = notes_of(support)
        named = options.max_width < _WIDE
        yield Text(support.model, style="bold")
        yield Text(summary(support))
        yield Text()
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        table.add_column("value", no_wrap=True)
        table.add_column("layout", no_wrap=True)
        table.add_column("where it is read", overflow="fold")
        for host, rows in by_host(support).items():
            title = Text(host, style="bold")
            path = Text(host_path(host), style="dim")
            table.add_row(title, *(("", path) if named else (path,)))
            for row in rows:
                table.add_row(*_cells(row, notes, row.layout if named else layout_of(row)))
        yield table
        if support.weights:
            yield Text()
            yield _weights(support)
        if named:
            yield Text()
            yield _layouts(support)
        if notes:
            yield Text()
            yield _numbered(notes)
        if of_others(support):
            yield Text()
            yield prose(of_others(support))


_WIDE = 100
"""From this width on each row has room for axes; below it rows name their layout, and a legend gives its axes."""


def _numbered(notes: dict[str, int]) -> Table:
    listed = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    for note, number in notes.items():
        listed.add_row(f"  ({number})", prose(note))
    return listed


def _weights(support: SupportRows) -> Table:
    listed = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    listed.add_column("weight", no_wrap=True)
    listed.add_column("axes", no_wrap=True)
    listed.add_column("where it is kept", overflow="fold")
    for row in support.weights:
        if row.available:
            axes = f"[{' '.join(row.axes)}]"
            listed.add_row(Text(f"  {row.weight}", style=STYLES["value"]), Text(axes), Text(row.where))
    return listed


def _layouts(support: SupportRows) -> Table:
    legend = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for name, axes in dict.fromkeys((row.layout, layout_of(row)) for row in support.rows if row.axes):
        legend.add_row(Text(f"  {name}", style="dim"), Text(axes))
    return legend


def support_text(support: SupportRows, width: int | None = None) -> str:
    """The table as plain text, as wide as the terminal within 80 and 120 columns, and 100 in a file."""
    if width is None:
        width = min(max(shutil.get_terminal_size((100, 24)).columns, 80), 120)
    page = io.StringIO()
    Console(
        file=page, width=width, color_system=None, force_jupyter=False, force_terminal=False, highlight=False
    ).print(SupportTable(support), end="")
    return "\n".join(line.rstrip() for line in page.getvalue().rstrip().split("\n"))


def by_host(support: SupportRows) -> dict[Host, list[SupportRow]]:
    """The rows under their hosts, in the order of the vocabulary."""
    hosts: dict[Host, list[SupportRow]] = {
        host: [row for row in support.rows if row.host == host and is_shown(row)] for host in HOSTS
    }
    return {host: rows for host, rows in hosts.items() if rows}


def is_shown(row: SupportRow) -> bool:
    """Whether a row is worth a line: a value that is of some families alone is shown where it is."""
    return row.available or not row.rare


def of_others(support: SupportRows) -> str:
    """A sentence on the values that this model lacks as most do."""
    names = [f"`{row.value}`" for row in support.rows if not is_shown(row)]
    if not names:
        return ""
    return f"Of other families: {', '.join(names)}. `support()[{names[0].strip('`')!r}]` says why one is not here."


def host_path(host: Host) -> str:
    """The path of a host, for any layer: `layers.*.self_attn`."""
    return HOSTS[host].format(layer="*")


def summary(support: SupportRows) -> str:
    """How the model is loaded, and how many values it has."""
    shown = [row for row in support.rows if is_shown(row)]
    return f"{support.load}; {sum(row.available for row in shown)} of {len(shown)} values"


def notes_of(support: SupportRows) -> dict[str, int]:
    """What rows say beyond where they are read, each once and numbered: why one is missing, and on what condition."""
    rows = (row for rows in by_host(support).values() for row in rows)
    said = dict.fromkeys(note for row in rows if (note := note_of(row)))
    return {note: number for number, note in enumerate(said, start=1)}


def note_of(row: SupportRow) -> str:
    """The note of one row; empty where there is nothing to say."""
    if not row.available:
        return row.where
    if row.condition.startswith("on "):
        return f"{row.condition}: layers {ranges(row.layers)}"
    return row.condition


def layout_of(row: SupportRow) -> str:
    """The axes of a row's value, or the word for one that has none."""
    return f"[{' '.join(row.axes)}]" if row.axes else row.layout.lower()


def prose(text: str) -> Text:
    """A sentence in which names in backticks stand out."""
    parts = re.split(r"`([^`]*)`", text)
    return Text.assemble(*((part, STYLES["value"] if i % 2 else "") for i, part in enumerate(parts)))


def _cells(row: SupportRow, notes: dict[str, int], layout: str) -> tuple[Text, Text, Text]:
    mark = f" ({notes[note_of(row)]})" if note_of(row) else ""
    if not row.available:
        dim = Text(f"  {row.value}", style="dim"), Text(layout, style="dim")
        return *dim, Text(f"not here{mark}", style=STYLES["aside"])
    where = prose(row.where) + Text(", read-only" if row.read_only else "", style=STYLES["aside"]) + Text(mark)
    return Text(f"  {row.value}", style=STYLES["value"]), Text(layout), where
