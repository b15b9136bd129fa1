"""`cutaway support MODEL`: which values there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutaway.cli.options import Json, Loading, Model, opens_a_model

if TYPE_CHECKING:
    from cutaway.cli.terminal import Table
    from cutaway.inspection.rows import SupportRow, SupportRows


@opens_a_model
def support(model: Model, loading: Loading, as_json: Json = False) -> None:
    """Print which values a model has.

    Shows where each is read, and why one is missing. Loads no weights, so that --device and --device-map change
    nothing here.
    """
    from cutaway.cli.opening import open_model
    from cutaway.cli.terminal import put

    found = open_model(model, loading, dispatch=False).support()
    put(as_json, found.to_dict, lambda: found, lambda: _table(found))


def _table(found: SupportRows) -> Table:
    from cutaway.cli.terminal import Table
    from cutaway.inspection.printout.terminal_support import summary

    header = ("value", "host", "layout", "axes", "here", "layers", "where", "note")
    return Table(header, map(_row, found), [f"{found.model}: {summary(found)}"])


def _row(row: SupportRow) -> tuple[str, ...]:
    from cutaway.inspection.numbers import ranges

    note = "; ".join(filter(None, ("read-only" if row.read_only else "", row.condition)))
    where = row.where if row.available else "-"
    return (
        row.value,
        row.host,
        row.layout,
        f"[{' '.join(row.axes)}]" if row.axes else "-",
        "yes" if row.available else "no",
        ranges(row.layers) or "-",
        where.replace("`", ""),
        (note if row.available else row.where).replace("`", "") or "-",
    )
