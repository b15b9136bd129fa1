"""What a check found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class CheckResult:
    """One promise, in words, and how many times it was put to the test."""

    promise: str
    cases: int


@dataclass(frozen=True)
class Untested:
    """A promise that could not be put to the test on these weights, under this load, and why."""

    promise: str
    why: str


@dataclass(frozen=True, repr=False)
class CheckReport:
    """What was checked, all of which held, and what could not be put to the test.

    Iterating gives the results, in the order of the test.
    """

    model: str
    results: tuple[CheckResult, ...]
    untested: tuple[Untested, ...] = ()

    def __iter__(self) -> Iterator[CheckResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __str__(self) -> str:
        lines = [f"{self.model} keeps the standard vocabulary:"]
        lines += [f"  ✓ {result.promise} ({result.cases})" for result in self.results]
        return "\n".join(lines + [f"  – untested: {skipped.promise}: {skipped.why}" for skipped in self.untested])

    __repr__ = __str__
