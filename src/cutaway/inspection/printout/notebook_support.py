"""A support in a notebook: a table, and below, the notes that its rows refer to."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from cutaway.inspection.printout.notebook_style import page, prose
from cutaway.inspection.printout.terminal_support import (
    by_host,
    host_path,
    layout_of,
    note_of,
    notes_of,
    of_others,
    summary,
)

if TYPE_CHECKING:
    from cutaway.inspection.rows import SupportRow, SupportRows, WeightRow


def support_html(support: SupportRows) -> str:
    """A fragment of HTML with its own style, everything escaped."""
    notes = notes_of(support)
    lines = [f"<p><strong>{escape(support.model)}</strong><br>{escape(summary(support))}</p>"]
    lines += ["<table>", "<thead><tr><th>value</th><th>layout</th><th>where it is read</th></tr></thead>", "<tbody>"]
    for host, rows in by_host(support).items():
        lines.append(f'<tr><th>{host}</th><td colspan="2" class="faint">{host_path(host)}</td></tr>')
        lines += [_row(row, notes) for row in rows]
    lines += ["</tbody>", "</table>"]
    if support.weights:
        lines += ["<table>", "<thead><tr><th>weight</th><th>axes</th><th>where it is kept</th></tr></thead>", "<tbody>"]
        lines += [_weight(row) for row in support.weights if row.available]
        lines += ["</tbody>", "</table>"]
    if notes:
        lines += ["<ol>", *(f"<li>{prose(note)}</li>" for note in notes), "</ol>"]
    if of_others(support):
        lines.append(f'<p class="faint">{prose(of_others(support))}</p>')
    return page("\n".join(lines))


def _weight(row: WeightRow) -> str:
    meaning = escape(row.meaning.replace("`", ""), quote=True)
    name = f'<td><code class="name" title="{meaning}">{escape(row.weight)}</code></td>'
    return f"<tr>{name}<td>[{' '.join(row.axes)}]</td><td>{escape(row.where)}</td></tr>"


def _row(row: SupportRow, notes: dict[str, int]) -> str:
    mark = f" ({notes[note_of(row)]})" if note_of(row) else ""
    meaning = escape(row.meaning.replace("`", ""), quote=True)
    if not row.available:
        name = f'<td><code title="{meaning}">{escape(row.value)}</code></td>'
        return f'<tr class="missing">{name}<td>{escape(layout_of(row))}</td><td><em>not here{mark}</em></td></tr>'
    name = f'<td><code class="name" title="{meaning}">{escape(row.value)}</code></td>'
    aside = ', <span class="aside">read-only</span>' if row.read_only else ""
    return f"<tr>{name}<td>{escape(layout_of(row))}</td><td>{prose(row.where)}{aside}{mark}</td></tr>"
