"""What a check found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutaway.families import TakenOff


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
    """What was checked, all of which held, and what could not be put to the test; and of a derived family what was
    claimed at first and did not hold.

    Iterating gives the results, in the order of the test.
    """

    model: str
    results: tuple[CheckResult, ...]
    untested: tuple[Untested, ...] = ()
    taken_off: tuple[TakenOff, ...] = ()
    derived: bool = False

    def __iter__(self) -> Iterator[CheckResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __str__(self) -> str:
        what = "what was derived of it, and measured" if self.derived else "the standard vocabulary"
        lines = [f"{self.model} keeps {what}:" if self.results else f"{self.model} could not be put to the test:"]
        lines += [f"  ✓ {result.promise} ({result.cases})" for result in self.results]
        lines += [f"  – untested: {skipped.promise}: {skipped.why}" for skipped in self.untested]
        return "\n".join(lines + [f"  – taken off: {off.told()}" for off in self.taken_off])

    __repr__ = __str__
