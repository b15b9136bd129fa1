"""src/cutaway/data/families.json: what was found of each class in short, for the encyclopedia's page of all classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from catalogue.page import exact, holding
from catalogue.workers import Row

_WHO = ("name", "class", "images", "state")
_FOUND = ("family", "derived", "measured", "taken_off")


def written(rows: Sequence[Row], versions: Mapping[str, str]) -> str:
    """The file, with a line a class."""
    lines = ",\n".join(json.dumps(_in_short(row), ensure_ascii=False) for row in rows)
    return f'{{"versions": {json.dumps(versions)},\n"classes": [\n{lines}\n]}}\n'


def _in_short(row: Row) -> dict[str, Any]:
    who = {key: row[key] for key in _WHO}
    if row["state"] != "opened":
        return {**who, "reason": row["reason"]}
    kinds = [
        {key: kind[key] or "" for key in ("what", "sum", "no_sum")} | {"layers": kind["layers"]}
        for kind in row["layers"]
    ]
    held, tried = holding(row)
    return {
        **who,
        **{key: row[key] for key in _FOUND},
        "layers": kinds,
        "sum_exact": exact(row),
        "values": row["counts"]["names"],
        "held": held,
        "tried": tried,
    }
