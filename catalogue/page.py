"""docs/families.md: what was found, as a page: totals, a row a class, and the reasons below."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from typing import Any

from catalogue.examine import MORE, ORACLES
from catalogue.workers import Row
from cutaway.inspection.numbers import ranges

HOLDS = {name: what for name, (what, _) in ORACLES.items()} | MORE
"""Each oracle, and what holds if it does."""

_NONE = "–"

_HEAD = """# Families

Which decoders of transformers open in Cutaway, what is served of each, and what was put to the test: every class that
transformers maps to causal language modelling, and every other that it maps to text from images, as far as these run
on ids alone. Written by `make families` on {date}, on a CPU, with
{versions}.

Each class is a tiny random model of its default config ([how](../catalogue/tiny.py)): four layers or so, large weights.
What is found holds for the code of the class; a checkpoint is measured again when it is opened. The oracles are
transformers' own records and `generate`, and raw torch hooks ([what each does](../catalogue/oracles.py)), never
Cutaway's own output. A case is one comparison, bit for bit but for gradients; of no case at all nothing is claimed.
"""

_ABOUT = """**Family** is the hand-written file that covers the class; "derived" where it is found in a pass.
**Values** counts the names that are served. **Sum** says whether what a block returns is the sum that its family
states, in every layer bit for bit; why not, and what was **taken off** and by which figure, is in the reasons below.
**Oracles** says how many hold of those that had a case.
"""


def written(rows: Sequence[Row], versions: dict[str, str]) -> str:
    """The page of what was found."""
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    date = datetime.date.today().isoformat()
    parts = [
        _HEAD.format(date=date, versions=told),
        "## In total\n\n" + "\n".join(_totals(rows)),
        "## What was put to the test\n\n" + "\n".join(_oracles(rows)),
        "## The classes\n\n" + _ABOUT + "\n" + "\n".join(_classes(rows)),
        "## How many cases\n\nA number is of cases that all held.\n\n" + "\n".join(_cases(rows)),
        "## Why\n\n" + "\n".join(_reasons(rows)),
        "## What could not be tried\n\n" + "\n".join(_untried(rows)),
        "## Not opened\n\n" + "\n".join(_not_opened(rows)),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def opened(rows: Sequence[Row]) -> list[Row]:
    """The rows of classes that opened."""
    return [row for row in rows if row["state"] == "opened"]


def exact(row: Row) -> bool:
    """Whether every kind of layer has a sum, and it holds in every layer."""
    found = row["oracles"]["sum"]
    return all(kind["sum"] for kind in row["layers"]) and found["held"] == found["tried"] > 0


def holding(row: Row) -> tuple[int, int]:
    """How many oracles hold, of how many that had a case."""
    tried = [found for found in row["oracles"].values() if found["tried"]]
    return sum(found["held"] == found["tried"] for found in tried), len(tried)


def total(rows: Sequence[Row]) -> str:
    """The totals in a sentence."""
    cases = [found for row in opened(rows) for found in row["oracles"].values()]
    held, tried = sum(found["held"] for found in cases), sum(found["tried"] for found in cases)
    return (
        f"{len(opened(rows))} of {len(rows)} classes open, the sum is exact on {sum(map(exact, opened(rows)))}; "
        f"{held:,} of {tried:,} cases hold."
    )


def in_lines(row: Row) -> Iterator[str]:
    """What was found of one class, for a terminal."""
    if row["state"] != "opened":
        yield f"{row['class']}: {row['state']}: {row['reason']}"
        return
    yield f"{row['class']}: {_family(row)}, {row['counts']['names']} values in {row['counts']['places']} places"
    for kind in row["layers"]:
        told = f"layer_output = {kind['sum']}" if kind["sum"] else f"no sum: {kind['no_sum']}"
        yield f"  layers {ranges(kind['layers'])}: {kind['what']}: {told}"
    for off in row["taken_off"]:
        yield f"  taken off: {off['claim']}: {off['why']}"
    for name, found in row["oracles"].items():
        yield f"  {name:<12}{_count(found):>12}  {HOLDS[name]}"
        yield from (f"{'':14}differs: {why}" for why in found["differs"])
        yield from (f"{'':14}not tried: {why}" for why in found["untried"])


def _table(header: Sequence[str], rows: Iterator[Sequence[Any]] | Sequence[Sequence[Any]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"| {' | '.join('---' for _ in header)} |"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"


def _totals(rows: Sequence[Row]) -> Iterator[str]:
    groups = [[row for row in rows if not row["images"]], [row for row in rows if row["images"]]]

    def line(what: str, count: Any) -> list[Any]:
        return [what, *(count(group) for group in groups)]

    def among(holds: Any) -> Any:
        return lambda group: sum(1 for row in opened(group) if holds(row))

    lines = [
        line("classes in the mapping", len),
        line(
            "a tiny model is built and runs on ids",
            lambda g: sum(r["state"] not in ("not built", "not run") for r in g),
        ),
        line("opened", lambda group: len(opened(group))),
        line("of these with a family file", among(lambda row: not row["derived"])),
        line("of these derived and measured", among(lambda row: row["derived"] and row["measured"])),
        line("sum exact on every kind of layer", among(exact)),
        line("every oracle that had a case holds", among(lambda row: holding(row)[0] == holding(row)[1])),
    ]
    yield from _table(("", "causal language models", "text from images"), lines)
    yield ""
    yield total(rows)


def _oracles(rows: Sequence[Row]) -> Iterator[str]:
    cells: list[list[Any]] = []
    for name, what in HOLDS.items():
        found = [row["oracles"][name] for row in opened(rows)]
        hold = sum(one["held"] == one["tried"] > 0 for one in found)
        part = sum(one["held"] != one["tried"] for one in found)
        held, tried = sum(one["held"] for one in found), sum(one["tried"] for one in found)
        cells.append(
            [name, what, hold, part or _NONE, sum(not one["tried"] for one in found) or _NONE, f"{held:,} of {tried:,}"]
        )
    yield from _table(("oracle", "holds if", "classes", "with a difference", "without a case", "cases held"), cells)


def _classes(rows: Sequence[Row]) -> Iterator[str]:
    header = ("class", "family", "layers", "values", "sum", "taken off", "oracles")
    yield from _table(header, [_cells(row) for row in rows])


def _cells(row: Row) -> list[Any]:
    if row["state"] != "opened":
        return [f"`{row['class']}`", row["state"], *[_NONE] * 5]
    held, tried = holding(row)
    claims = dict.fromkeys(off["claim"] for off in row["taken_off"])
    off = _NONE if not claims else next(iter(claims)) if len(claims) == 1 else f"{len(claims)} claims"
    return [
        f"`{row['class']}`",
        _family(row),
        _layers(row),
        row["counts"]["names"],
        _sum(row),
        off,
        f"{held} of {tried}" if held == tried else f"**{held} of {tried}**",
    ]


def _family(row: Row) -> str:
    if not row["derived"]:
        return str(row["family"])
    return "derived" if row["measured"] else "derived, unmeasured"


def _layers(row: Row) -> str:
    if len(row["layers"]) == 1:
        return str(row["layers"][0]["what"])
    return "; ".join(f"{ranges(kind['layers'])}: {kind['what']}" for kind in row["layers"])


def _sum(row: Row) -> str:
    if exact(row):
        return "exact"
    stated = [kind for kind in row["layers"] if kind["sum"]]
    if not stated:
        return "none"
    held = row["oracles"]["sum"]["held"] == row["oracles"]["sum"]["tried"]
    return f"{'exact' if held else 'not exact'} on {len(stated)} of {len(row['layers'])} kinds"


def _count(found: dict[str, Any]) -> str:
    if not found["tried"]:
        return _NONE
    return str(found["held"]) if found["held"] == found["tried"] else f"{found['held']} of {found['tried']}"


def _cases(rows: Sequence[Row]) -> Iterator[str]:
    lines = [[f"`{row['class']}`", *(_count(row["oracles"][name]) for name in HOLDS)] for row in opened(rows)]
    yield from _table(("class", *HOLDS), lines)


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    for row in opened(rows):
        several = len(row["layers"]) > 1
        lacking = [kind for kind in row["layers"] if not kind["sum"]]
        told = [f"no sum{_on(kind['layers']) if several else ''}: {kind['no_sum']}" for kind in lacking]
        for off in row["taken_off"]:
            told.append(f"taken off: {off['claim']}{_on(off['layers'])}: {off['why']}")
        told += [f"{name}, a difference: {why}" for name, one in row["oracles"].items() for why in one["differs"]]
        if told:
            yield f"- `{row['class']}`"
            yield from (f"  - {_in_a_line(why)}" for why in told)


def _on(layers: Sequence[int]) -> str:
    return f" on layer{'s' * (len(layers) > 1)} {ranges(layers)}" if layers else ""


def _untried(rows: Sequence[Row]) -> Iterator[str]:
    yield "By oracle and reason, with the classes.\n"
    found: dict[str, dict[str, list[str]]] = {name: {} for name in HOLDS}
    for row in opened(rows):
        for name, one in row["oracles"].items():
            for why in one["untried"]:
                found[name].setdefault(_in_a_line(why), []).append(row["class"])
    for name, reasons in found.items():
        if reasons:
            yield f"- {name}"
        for why, classes in sorted(reasons.items(), key=lambda item: -len(item[1])):
            yield f"  - {why} ({', '.join(f'`{one}`' for one in classes)})"


def _not_opened(rows: Sequence[Row]) -> Iterator[str]:
    yield "What Cutaway does not open is refused; of the others there is no tiny model, or none that runs on ids.\n"
    for row in rows:
        if row["state"] != "opened":
            yield f"- `{row['class']}`: {row['state']}: {_in_a_line(row['reason'])}"


def _in_a_line(text: str) -> str:
    return re.sub(r"\s+", " ", str(text)).strip()


def parsed(text: str) -> tuple[dict[str, list[str]], dict[str, tuple[int, int]]]:
    """The table of classes, the cells of each row by its class, and the totals by their words."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]
    begin = next(number for number, row in enumerate(cells) if row[0].strip() == "class")
    end = next(number for number, row in enumerate(cells[begin + 1 :], begin + 1) if row[0].strip() == "class")
    rows = {row[0].strip("` "): row[1:] for row in cells[begin + 2 : end]}
    totals = {row[0].strip(): (int(row[1]), int(row[2])) for row in cells if len(row) == 3 and row[1].strip().isdigit()}
    return rows, totals
