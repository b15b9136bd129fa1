"""How much is measured."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.timing import Clock


@dataclass(frozen=True)
class Settings:
    """How long and how often.

    Attributes:
        budget: seconds for each workload on each model, beyond the least rounds.
        least, most: rounds of each workload.
        starts: how often each library is started.
        growth_rounds: rounds of each point of a curve.
        clock: what the time is taken by.
    """

    budget: float
    least: int
    most: int
    starts: int
    growth_rounds: int
    clock: Clock = time.perf_counter


FULL = Settings(budget=4.0, least=11, most=200, starts=3, growth_rounds=9)
QUICK = Settings(budget=1.0, least=3, most=20, starts=1, growth_rounds=3)
SMALLEST = Settings(budget=0.0, least=1, most=1, starts=1, growth_rounds=1)
