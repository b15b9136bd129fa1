"""`docs/performance.md`, made from the results: no figure on it is typed in by hand."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW
from benchmarks.goals import MINI, WIDE, best, goals
from benchmarks.workloads import WORKLOADS

TEMPLATE = Path(__file__).with_name("performance.md")


def page(results: dict[str, Any]) -> str:
    """The page's text."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return string.Template(TEMPLATE.read_text()).substitute(
        date=machine["date"],
        machine=f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}",
        python=machine["python"],
        versions=versions,
        threads=f"{results['threads']} thread{'s' if results['threads'] > 1 else ''}",
        clock=_CLOCKS[results["threads"] == 1],
        load=f"{machine['load_before']:.1f}",
        seconds=results["seconds"],
        summary=_summary(results),
        choice=_choice(results),
        workloads="\n\n".join(_workload(results["workloads"], workload.number) for workload in WORKLOADS),
        large=_large(results.get("large")),
        memory=_memory(results["memory"]),
        starts=_starts(results["starts"]),
        goals=_goals(results),
        growth=_growth(results),
    )


_CLOCKS = {
    True: "The clock is the process's own processor time, which others' turns on the machine do not lengthen.",
    False: "The clock is that on the wall.",
}


def _ways(results: dict[str, Any], case: str) -> dict[str, dict[str, Any]]:
    return {row["number"]: row["ways"] for row in results["workloads"] if row["case"] == case}


def _libraries(results: dict[str, Any]) -> list[str]:
    return [library for library in (CUTAWAY, NNSIGHT, LENS) if library in results["libraries"]]


def _summary(results: dict[str, Any]) -> str:
    """A row a workload: each library's best way, as a multiple of raw hooks, on both models."""
    cases = list(dict.fromkeys(row["case"] for row in results["workloads"]))
    libraries = _libraries(results)
    rows = []
    for workload in WORKLOADS:
        cells = [f"{workload.number}. {workload.title}"]
        for case in cases:
            ways = _ways(results, case).get(workload.number)
            cells += [f"{best(ways, library):.2f}" if ways else "" for library in libraries]
        rows.append(cells)
    return _table(["workload", *(f"{case}: {library}" for case in cases for library in libraries)], rows)


def _choice(results: dict[str, Any]) -> str:
    """What the figures mean for a choice, in sentences that carry them."""
    mini, wide = _ways(results, MINI), _ways(results, WIDE)
    lines = []
    if mini and wide:
        lines.append(
            f"- **Cutaway or raw hooks?** All layers' outputs and the logits took {mini['3'][CUTAWAY]['to_raw']:.2f} "
            f"of the raw hooks' time on phi-mini and {wide['3'][CUTAWAY]['to_raw']:.2f} on the wider model. A trace "
            "adds a fixed time at its opening and some for each value, whatever the model's size (see the curve over "
            "values): the larger the model, the less it is of the whole."
        )
        lines.append(
            "- **A with-block or `read`?** A with-block pauses the pass at every value; `read` does not. For many "
            f"values that nothing is to be done with in between, `read` is the quicker: every value of phi-mini took "
            f"{mini['4'][f'{CUTAWAY}, read']['to_raw']:.2f} of raw hooks by `read` and "
            f"{mini['4'][CUTAWAY]['to_raw']:.2f} in a with-block."
        )
    for peer, why in ((NNSIGHT, _AGAINST_NNSIGHT), (LENS, _AGAINST_LENS)):
        if peer in results["libraries"] and mini and wide:
            ratios = [
                best(ways, peer) / best(ways, CUTAWAY)
                for each in (mini, wide)
                for n, ways in each.items()
                if n not in "78"
            ]
            lines.append(
                f"- **{peer}?** It took {min(ratios):.2f} to {max(ratios):.2f} of Cutaway's time, generation and the "
                f"sweep left out. {why}"
            )
    if mini and wide:
        small, large = (each["7"][CUTAWAY]["median_ms"] / 1e3 for each in (mini, wide))
        lines.append(
            f"- **Sweeps.** `patching_sweep` took {small:.2f} s on phi-mini and {large:.1f} s on the wider model. It "
            "runs positions that lie together as one batch, which every library can be made to do by hand (the "
            "`batched` rows). It passes over the blocks below the patched one, whose outcome is known, and runs what "
            "stands before the first position once."
        )
    return "\n".join(lines)


_AGAINST_NNSIGHT = (
    "Version 0.8 runs the model in place and pauses it with greenlets, as Cutaway does, so that the two are near each "
    "other wherever a forward pass is what takes the time: choose by names, layouts and what is checked, not by speed. "
    "It reads a with-block's source, so that the block must stand in a file or a notebook."
)
_AGAINST_LENS = (
    "Its bridge runs attention of its own, eager always, with hook points in every module, and that is paid also when "
    "nothing is asked. Under the versions named above its Phi bridge drops the key and value cache, so that generation "
    "is run without it."
)


def _workload(rows: Sequence[dict[str, Any]], number: str) -> str:
    own = [row for row in rows if row["number"] == number]
    parts = [f"### {number}. {own[0]['title']}" if own else ""]
    for row in own:
        parts.append(f"{row['case']}, {row['tokens']} tokens, {row['attention']} attention, {_rounds(row)}")
        parts.append(_ways_table(row["ways"]))
    return "\n\n".join(parts)


def _ways_table(ways: dict[str, Any]) -> str:
    rows = []
    for name, way in ways.items():
        low, high = way["quartiles_ms"]
        rows.append(
            [
                name,
                _ms(way["median_ms"]),
                f"{_ms(low)} – {_ms(high)}",
                f"{way['to_raw']:.3f}",
                f"{way['to_cutaway']:.2f}",
                "0" if way["difference"] == 0 else f"{way['difference']:.0e}",
            ]
        )
    return _table(["way", "median, ms", "quartiles, ms", "to raw hooks", "to Cutaway", "largest difference"], rows)


def _large(rows: list[dict[str, Any]] | None) -> str:
    if not rows:
        return "Not measured in this run: `make bench LARGE=1` does it, in about 6 GB."
    parts = []
    for row in rows:
        parts.append(f"{row['number']}. {row['title']}, {row['tokens']} tokens, {_rounds(row)}")
        parts.append(_ways_table(row["ways"]))
    return "\n\n".join(parts)


def _memory(rows: Sequence[dict[str, Any]]) -> str:
    libraries = list(dict.fromkeys(name for row in rows for name in row["peak_mib"]))
    plain = [name for name in libraries if "," not in name]
    others = [name for name in libraries if "," in name]
    body = []
    for row in rows:
        peaks = row["peak_mib"]
        more = "; ".join(f"{name} {peaks[name]:.0f}" for name in others if name in peaks)
        body.append([f"{row['number']}. {row['title']}", *(f"{peaks[name]:.0f}" for name in plain), more])
    return _table(["workload", *(f"{name}, MiB" for name in plain), "other ways"], body)


def _starts(starts: dict[str, Any]) -> str:
    names = list(dict.fromkeys((*starts["import"], *starts["first value"])))
    body = [[name, *(_seconds(starts[kind].get(name)) for kind in ("import", "first value"))] for name in names]
    return _table(["library", "import, s", "process start to first value, s"], body)


def _seconds(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    low, high = found["quartiles_s"]
    return f"{found['median_s']:.2f} ({low:.2f} – {high:.2f})"


def _goals(results: dict[str, Any]) -> str:
    words = {True: "met", False: "**missed**", None: "not measured"}
    return _table(["goal", "measured", ""], [[goal.text, goal.measured, words[goal.met]] for goal in goals(results)])


def _growth(results: dict[str, Any]) -> str:
    parts = []
    for curve in results["growth"]:
        picture = f"![Milliseconds over {curve['axis']}](figures/performance-{curve['name']}.svg)"
        parts.append(f"**{_GROWTH[curve['name']]}** {_ends(curve)}\n\n{picture}")
    return "\n\n".join(parts)


_GROWTH = {
    "layers": "Layers.",
    "tokens": "Tokens.",
    "batch": "Batch.",
    "values": "Values asked.",
    "depth": "Depth of the layer that is read.",
}


def _ends(curve: dict[str, Any]) -> str:
    own, raw = curve["lines"][CUTAWAY], curve["lines"][RAW]
    first, last = (f"{point['at']}" for point in (own[0], own[-1]))
    extra = [1e3 * (a["median_ms"] - b["median_ms"]) for a, b in zip(own, raw, strict=True)]
    return (
        f"Over {curve['axis']}, from {first} to {last}, Cutaway went from {_ms(own[0]['median_ms'])} to "
        f"{_ms(own[-1]['median_ms'])} ms and raw hooks from {_ms(raw[0]['median_ms'])} to "
        f"{_ms(raw[-1]['median_ms'])} ms; the difference from {extra[0]:.0f} to {extra[-1]:.0f} µs."
    )


def _rounds(row: dict[str, Any]) -> str:
    return f"{row['rounds']} round{'s' if row['rounds'] > 1 else ''}"


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
