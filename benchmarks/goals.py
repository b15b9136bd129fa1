"""The goals, each held against what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT

MINI, WIDE = "phi-mini", "12 layers, 768 wide"


@dataclass(frozen=True)
class Goal:
    """A goal and what was measured; `met` is None where it could not be measured."""

    text: str
    measured: str
    met: bool | None


def goals(results: dict[str, Any]) -> list[Goal]:
    """All goals."""
    rows = {(row["case"], row["number"]): row["ways"] for row in results["workloads"]}
    return [
        *_near_raw(rows, WIDE, 1.03),
        *_near_raw(rows, MINI, 1.15),
        *(_at_most(rows, case, "4", 1.25) for case in (WIDE, MINI) if (case, "4") in rows),
        *_beside_peers(rows, results["libraries"]),
        *_early(results),
    ]


def best(ways: dict[str, Any], library: str, key: str = "to_raw") -> float:
    """The library's best way, where it has several."""
    return min(way[key] for way in ways.values() if way["library"] == library)


def _near_raw(rows: dict[Any, Any], case: str, limit: float) -> list[Goal]:
    return [_at_most(rows, case, number, limit) for number in ("1", "2", "3", "6") if (case, number) in rows]


def _at_most(rows: dict[Any, Any], case: str, number: str, limit: float) -> Goal:
    ways = {name: way for name, way in rows[case, number].items() if way["library"] == CUTAWAY}
    found = best(ways, CUTAWAY) if number == "4" else ways[CUTAWAY]["to_raw"]
    each = ", ".join(
        f"{name.removeprefix(CUTAWAY).strip(', ') or 'plain'} {way['to_raw']:.3f}" for name, way in ways.items()
    )
    return Goal(f"{number} on {case}: at most {limit:.2f} of raw hooks", each, found <= limit)


def _beside_peers(rows: dict[Any, Any], libraries: list[str]) -> list[Goal]:
    found = []
    for peer in (NNSIGHT, LENS):
        if peer not in libraries:
            continue
        ratios = {key: best(ways, peer) / best(ways, CUTAWAY) for key, ways in rows.items()}
        slower = [f"{number} on {case} ({value:.2f})" for (case, number), value in ratios.items() if value < 1]
        text = f"faster than {peer} everywhere"
        found.append(
            Goal(
                text, "slower in " + ", ".join(slower) if slower else f"least {min(ratios.values()):.2f} ×", not slower
            )
        )
        for number in ("2", "3", "6"):
            if (MINI, number) in rows:
                value, raw = ratios[MINI, number], best(rows[MINI, number], peer)
                measured = f"{value:.2f} ×; raw hooks themselves {raw:.2f} ×"
                found.append(Goal(f"{number} on {MINI}: at least 1.8 × as fast as {peer}", measured, value >= 1.8))
        for case in (MINI, WIDE):
            if (case, "7") in rows:
                ways = rows[case, "7"]
                value = ways[peer]["to_cutaway"]
                text = f"7 on {case}: at least 3 × as fast as {peer}'s one by one"
                found.append(Goal(text, f"{value:.2f} ×", value >= 3))
    return found


def _early(results: dict[str, Any]) -> list[Goal]:
    curve = next((curve for curve in results["growth"] if curve["name"] == "depth"), None)
    if curve is None:
        return []
    lines = curve["lines"]
    whole = {point["at"]: point["median_ms"] for point in lines["whole forward"]}
    points = lines[CUTAWAY]
    depth = int(curve["axis"].rpartition(" ")[2])
    over = [(point["at"], point["median_ms"] / whole[point["at"]], point["at"] / depth) for point in points]
    text = "reading an early layer costs its share of the forward, within a twentieth of the forward"
    measured = "; ".join(f"layer {at} of {depth}: {took:.2f} for a share of {share:.2f}" for at, took, share in over)
    return [Goal(text, measured, all(took <= share + 0.05 for _, took, share in over))]
