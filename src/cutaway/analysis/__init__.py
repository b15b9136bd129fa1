"""Analyses: what can be learned of a model by reading and editing its values.

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutaway.analysis.labelled import Check, LabelledTensor
    from cutaway.analysis.patching import patching_sweep

__all__ = ["Check", "LabelledTensor", "patching_sweep"]

_HOME = {
    "Check": "cutaway.analysis.labelled",
    "LabelledTensor": "cutaway.analysis.labelled",
    "patching_sweep": "cutaway.analysis.patching",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'cutaway.analysis' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
