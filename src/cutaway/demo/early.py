"""What stopping early saves: modules that did not run, counted by plain torch hooks, and time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch import nn


def count_modules(model: nn.Module, run: Callable[[], object]) -> tuple[int, int]:
    """How many of a model's modules a run enters, and how many there are, lists of modules left out."""
    entered: set[nn.Module] = set()

    def note(module: nn.Module, _arguments: Any) -> None:
        entered.add(module)

    callable_ones = [module for module in model.modules() if not isinstance(module, nn.ModuleList)]
    hooks = [module.register_forward_pre_hook(note) for module in callable_ones]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return len(entered), len(callable_ones)


def time_ratio(part: Callable[[], object], whole: Callable[[], object], rounds: int = 7) -> float:
    """The time of one run over that of another. They are run in turn, and the fastest of each counts."""
    times = [(_seconds(part), _seconds(whole)) for _ in range(rounds)]
    return min(first for first, _ in times) / min(second for _, second in times)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
