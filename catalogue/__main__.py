"""`python -m catalogue`: examine every class, and write docs/families.md and the data of the encyclopedia's page."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from catalogue.workers import ROOT, Row, examine_all, keep, kept, mark, serve, versions

PAGE = ROOT / "docs" / "families.md"
DATA = ROOT / "src" / "cutaway" / "data" / "families.json"


def main(arguments: list[str] | None = None) -> int:
    """Does as the command line says, and gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m catalogue", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="classes, or model types: examine these anew, and tell of them"
    )
    parser.add_argument(
        "--json", action="store_true", help="print what is found as data, a line a class; write no page"
    )
    parser.add_argument("--fresh", action="store_true", help="examine anew what an earlier run has found")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="how many at a time (2)")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write (docs/families.md)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, default=DATA, help="where to (src/cutaway/data/families.json)")
    chosen = parser.parse_args(arguments)
    if chosen.worker:
        serve()
        return 0
    from catalogue import data, page, tiny

    cases = tiny.cases(images=True)
    if chosen.only:
        wanted = {name.lower() for name in chosen.only}
        cases = [case for case in cases if {case.name.lower(), case.architecture.lower()} & wanted]
        unknown = wanted - {word for case in cases for word in (case.name.lower(), case.architecture.lower())}
        if unknown:
            sys.exit(f"transformers maps no such class to text: {', '.join(sorted(unknown))}")
    own = mark()
    found = {} if chosen.only or chosen.fresh else kept(own)
    _examine([case for case in cases if case.name not in found], found, chosen.processes, None if chosen.only else own)
    rows = [found[case.name] for case in cases]
    if chosen.json:
        for row in rows:
            print(json.dumps(row))
    elif chosen.only:
        print("\n".join(line for row in rows for line in page.in_lines(row)))
    else:
        chosen.page.write_text(page.written(rows, versions()), encoding="utf-8")
        chosen.data.write_text(data.written(rows, versions()), encoding="utf-8")
        print(f"{page.total(rows)} Written: {chosen.page} and {chosen.data}")
    return 0 if all(row["state"] != "broken off" for row in rows) else 1


def _examine(cases: list, found: dict[str, Row], processes: int, own: str | None) -> None:
    """Adds the rows of cases to what is found, and keeps them, unless `own` is None."""
    lock = threading.Lock()
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("examining", total=len(cases) + len(found), completed=len(found))

        def tell(row: Row) -> None:
            with lock:
                found[row["name"]] = row
                if own is not None:
                    keep(row, own)
                bar.update(task, advance=1, description=row["name"][:24])

        examine_all(cases, processes, tell)


if __name__ == "__main__":
    sys.exit(main())
