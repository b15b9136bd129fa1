"""docs/families.md as it is in the repository."""

from __future__ import annotations

from pathlib import Path

from catalogue import page, tiny

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
OPENED, EXACT = "opened", "sum exact on every kind of layer"


def test_every_class_has_a_row_and_the_totals_are_kept() -> None:
    rows, totals = page.parsed(PAGE.read_text(encoding="utf-8"))
    assert {case.architecture for case in tiny.cases(images=True)} <= set(rows)
    assert totals["classes in the mapping"] == (len(tiny.cases()), len(tiny.cases(images=True)) - len(tiny.cases()))
    assert totals[OPENED][0] >= 175
    assert totals[EXACT][0] >= 132


def test_the_totals_are_those_of_the_rows() -> None:
    rows, totals = page.parsed(PAGE.read_text(encoding="utf-8"))
    causal = {case.architecture for case in tiny.cases()}
    for place, group in enumerate((causal, set(rows) - causal)):
        shown = [rows[name] for name in group]
        states = ("not built", "not run", "refused", "broken off")
        assert totals[OPENED][place] == sum(row[0] not in states for row in shown)
        assert totals[EXACT][place] == sum(row[3] == "exact" for row in shown)
