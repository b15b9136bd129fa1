"""`cutaway support MODEL`: which values there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutaway.cli.options import Json, Loading, Model, opens_a_model

if TYPE_CHECKING:
    from cutaway.inspection.rows import SupportRow, SupportRows


@opens_a_model
def support(model: Model, loading: Loading, as_json: Json = False) -> None:
    """Print which values a model has.

    Shows where each is read, and why one is missing. Loads no weights, so that --device and --device-map change
    nothing here.
    """
    from cutaway.cli.opening import open_model
    from cutaway.cli.terminal import is_terminal, print_json, show

    found = open_model(model, loading, dispatch=False).support()
    if as_json:
        print_json(found.to_dict())
    elif is_terminal():
        show(found)
    else:
        _print_rows(found)


def _print_rows(found: SupportRows) -> None:
    from cutaway.cli.terminal import show_table
    from cutaway.inspection.printout.terminal_support import summary

    header = ("value", "host", "layout", "axes", "here", "layers", "where", "note")
    show_table(header, map(_row, found), [f"{found.model}: {summary(found)}"])


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
