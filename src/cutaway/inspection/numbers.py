"""Numbers of layers in short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in short: `0-31`, `0, 2-5`, and where they are evenly spaced, `0, 2, ... 30`."""
    steps = {b - a for a, b in pairwise(numbers)}
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}, {numbers[1]}, ... {numbers[-1]}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
