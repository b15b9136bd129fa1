"""Numbers of layers in short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in short: `0-31`, `0, 2-5`, and at even distances, `0, 2, ... 30` or `0-2, 4-6, ... 44-46`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    steps = {(b[0] - a[0], len(a), len(b)) for a, b in pairwise(runs)}
    return f"{told[0]}, {told[1]}, ... {told[-1]}" if len(runs) > 3 and len(steps) == 1 else ", ".join(told)
