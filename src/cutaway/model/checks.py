"""`check()`."""

from __future__ import annotations

from dataclasses import dataclass

from cutaway.model.subject import Subject


@dataclass(frozen=True)
class CheckReport:
    """What was checked."""


def check(subject: Subject) -> CheckReport:
    return CheckReport()
