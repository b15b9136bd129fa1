"""What a workload is: the same work, written once for each way of doing it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import LENS, Case
from benchmarks.timing import Clock, Seconds

Way = Callable[[Case], Any]

FEW = 6
"""Layers of a model that counts as small."""


class Reached(Exception):
    """Raised in a raw hook to leave a forward pass whose rest is not wanted."""


def tensors(_way: str, result: Any) -> list[Tensor]:
    """A result as a list of tensors."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, Mapping):
        return list(result.values())
    return list(result)


@dataclass(frozen=True)
class Workload:
    """A piece of work.

    Attributes:
        number: as pages and tables call it.
        title: what is done.
        ways: by library, or by library and manner, the function that does it on a case.
        eager: whether it is done under eager attention.
        large: whether it is done on the model of phi-2's size too.
        exact: whether the results are the raw hooks' bit for bit; TransformerLens computes attention in its own way, so
            that its are not.
        tokens: how long the prompt is; by default as long as the case's.
        small: the ways that are run on models of few layers alone, for the time that they take.
        alike: makes a way's result a list of tensors that can be compared.
    """

    number: str
    title: str
    ways: Mapping[str, Way]
    eager: bool = False
    large: bool = False
    exact: bool = True
    tokens: int | None = None
    small: frozenset[str] = frozenset()
    alike: Callable[[str, Any], list[Tensor]] = tensors

    def case(self, case: Case) -> Case:
        """The case as this workload runs it."""
        if self.tokens is not None and self.tokens != case.ids.shape[1]:
            case = case.resized(self.tokens, len(case.ids))
        return case.eager if self.eager else case

    def differences(self, case: Case, libraries: list[str]) -> dict[str, float]:
        """The largest difference of each way's result from the raw hooks', relative to the value's largest entry.

        Raises:
            AssertionError: a result is not the raw hooks'.
        """
        return self.compared(case, libraries)[0]

    def compared(
        self, case: Case, libraries: list[str], clock: Clock = time.perf_counter
    ) -> tuple[dict[str, float], Seconds]:
        """The differences, and the seconds that each way took."""
        wanted: list[Tensor] = []
        found: dict[str, float] = {}
        seconds: Seconds = {}
        for name, way in self.available(libraries, case).items():
            began = clock()
            result = way(case)
            seconds[name] = [clock() - began]
            given = self.alike(name, result)
            wanted = wanted or [value.detach().clone() for value in given]
            assert len(given) == len(wanted), f"{self.title}: {name} gave {len(given)} values of {len(wanted)}"
            found[name] = max(map(relative_difference, given, wanted))
            exact = self.exact and library_of(name) != LENS
            limit = 0.0 if exact else tolerance(case)
            assert found[name] <= limit, f"{self.title} on {case.name}: {name} differs by {found[name]:.2g}"
        return found, seconds

    def available(self, libraries: list[str], case: Case) -> dict[str, Way]:
        """The ways of these libraries, raw hooks first."""
        return {
            name: way
            for name, way in self.ways.items()
            if library_of(name) in libraries and (name not in self.small or case.num_layers <= FEW)
        }


def library_of(way: str) -> str:
    """The library of a way: `Cutaway, read` is Cutaway's."""
    return way.split(",")[0]


def tolerance(case: Case) -> float:
    """How far results may be apart that were computed in another order, relative to a value's largest entry."""
    return 0.1 if case.hf.dtype == torch.bfloat16 else 2e-4


def relative_difference(given: Tensor, wanted: Tensor) -> float:
    """The largest difference, relative to the largest entry of what is wanted; masked scores are left out."""
    assert given.shape == wanted.shape, f"{list(given.shape)} instead of {list(wanted.shape)}"
    given, wanted = given.detach().double(), wanted.detach().double()
    assert not (wanted.isnan().any() or given.isnan().any())
    seen = wanted > -1e30
    return float(((given - wanted)[seen].abs().max() / wanted[seen].abs().max().clamp(min=1e-12)).item())
