"""Timing two or more ways of doing the same work so that the machine's drift cancels.

The ways take turns, in an order that is shuffled at each round, and what counts is the median over the rounds of each
round's own ratio.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping

Ways = Mapping[str, Callable[[], object]]
Seconds = dict[str, list[float]]
Clock = Callable[[], float]


def clock_for(threads: int) -> Clock:
    """With one thread, the processor time of this process, which other processes' turns do not lengthen."""
    return time.process_time if threads == 1 else time.perf_counter


def interleave(ways: Ways, rounds: int, warmup: int = 3, clock: Clock = time.perf_counter) -> Seconds:
    """Seconds that each way took, round by round."""
    seconds: Seconds = {name: [] for name in ways}
    for _, found in zip(range(rounds), _rounds(ways, warmup, clock), strict=False):
        for name, taken in found.items():
            seconds[name].append(taken)
    return seconds


def interleave_for(
    ways: Ways, budget: float, least: int, most: int, warmup: int = 2, clock: Clock = time.perf_counter
) -> Seconds:
    """The same for about `budget` seconds: at least and at most so many rounds."""
    seconds: Seconds = {name: [] for name in ways}
    began = time.perf_counter()
    for number, found in enumerate(_rounds(ways, warmup, clock), 1):
        for name, taken in found.items():
            seconds[name].append(taken)
        if number >= most or (number >= least and time.perf_counter() - began > budget):
            break
    return seconds


def _rounds(ways: Ways, warmup: int, clock: Clock) -> Iterator[dict[str, float]]:
    for _ in range(warmup):
        for way in ways.values():
            way()
    shuffle = random.Random(0)
    names = list(ways)
    while True:
        shuffle.shuffle(names)
        found: dict[str, float] = {}
        for name in names:
            began = clock()
            ways[name]()
            found[name] = clock() - began
        yield found


def ratio(seconds: Mapping[str, list[float]], way: str, to: str) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(seconds[way], seconds[to], strict=True))


def spread(seconds: list[float]) -> tuple[float, float]:
    """The quartiles: half of the rounds lie between them."""
    if len(seconds) < 2:
        return seconds[0], seconds[0]
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return low, high
