"""A verification as a table in a terminal, and as plain text."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from cutaway.verification.findings import Compared, Findings

_LOOKS = {"agrees": ("agrees", "green"), "parts": ("PARTS", "bold red"), "follows": ("follows", "yellow")}
_MOST_TOLD = 5


def as_rich(found: Findings) -> RenderableType:
    """The table and what it comes to."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("value", no_wrap=True)
    for heading in ("layer", "absolute", "relative", "step"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in found.rows:
        word, style = _LOOKS.get(row.verdict, (row.verdict, "yellow"))
        table.add_row(
            Text(row.name, style="magenta"),
            "" if row.layer is None else str(row.layer),
            _figure(row.absolute),
            _figure(row.relative),
            "" if row.step is None else _figure(row.step),
            Text(word, style=style),
        )
    said = [Text(line, style="dim") for line in _explained(found)]
    return Group(
        Text(f"{_title(found)}\n"),
        table,
        Text(),
        *said,
        Text(),
        *(Text(line, style=style) for line, style in _told(found)),
    )


def as_text(found: Findings, width: int = 100) -> str:
    """The same without colour."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_jupyter=False)
    console.print(as_rich(found))
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().rstrip().split("\n"))


def sentences(found: Findings) -> list[str]:
    """What there is to say beside the table: what was compared and how, and what came of it."""
    return [_title(found), *_explained(found), *(line for line, _ in _told(found))]


def _title(found: Findings) -> str:
    return f"{found.model} ({found.dtype}) beside the NumPy reference ({found.reference}), {found.tokens} tokens"


def _explained(found: Findings) -> list[str]:
    tolerance = found.tolerance
    grows = f", and {tolerance.growth:g} × √blocks more in a whole pass" if tolerance.growth else ""
    return [
        "absolute, relative: over the whole pass, the latter as a share of the largest entry at the position",
        "step: against what the reference makes of the model's own values before it",
        f"tolerance in {found.dtype}: {tolerance.step:g}{grows}",
    ]


def _told(found: Findings) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    first = found.first
    if first is None:
        lines.append((f"All {len(found.compared)} values agree.", "bold green"))
    elif first.verdict == "parts":
        lines.append((f"The first value that parts is {first.path}, {_where(first)}.", "bold red"))
        lines.append((f"Likely reason: {first.reason}." if first.reason else _NO_REASON, ""))
        others = [one for one in found.parted if one is not first]
        lines += [
            (f"{one.path} parts too{f': {one.reason}' if one.reason else ''}.", "") for one in others[:_MOST_TOLD]
        ]
        if len(others) > _MOST_TOLD:
            lines.append((f"So do {len(others) - _MOST_TOLD} more.", ""))
    else:
        lines.append((f"The first value that is apart is {first.path}, {_where(first)}.", "bold red"))
        lines.append((_DRIFT, ""))
    return lines + [(remark, "dim") for remark in found.remarks]


def _where(one: Compared) -> str:
    step = one.step if one.verdict == "parts" and one.step is not None else one.whole
    at = f" at {list(step.place)}" if step.place else ""
    return f"by {_figure(step.relative)} relative{at}"


def _figure(number: float) -> str:
    return "0" if number == 0 else "∞" if math.isinf(number) else f"{number:.1e}"


_NO_REASON = "None of the reasons that are tried for it explains the difference."
_DRIFT = (
    "Every step by itself agrees with the reference, so that no part is another: roundings add up, in a model that "
    "makes small differences large. Load it in a wider dtype to see."
)
