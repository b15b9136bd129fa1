"""Timing two or more ways of doing the same work so that the machine's drift cancels.

The ways take turns, in an order that is shuffled at each round, and what counts is the median over the rounds of each
round's own ratio.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping


def interleave(ways: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 3) -> dict[str, list[float]]:
    """Seconds that each way took, round by round."""
    for _ in range(warmup):
        for way in ways.values():
            way()
    shuffle = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for _ in range(rounds):
        shuffle.shuffle(names)
        for name in names:
            began = time.perf_counter()
            ways[name]()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(seconds: Mapping[str, list[float]], way: str, to: str) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(seconds[way], seconds[to], strict=True))
