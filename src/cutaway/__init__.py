"""Cutaway: standard names for the insides of transformers.

>>> from cutaway import StandardizedTransformer
>>> model = StandardizedTransformer("phi-mini")
>>> with model.trace("def add(a, b):"):
...     stream = model.layers[2].layer_output
...     probs = model.next_token_probs

`import cutaway` is quick: torch and transformers are imported when a name that needs them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cutaway import errors, vocabulary
from cutaway.errors import CutawayError
from cutaway.version import __version__ as __version__
from cutaway.vocabulary.elsewhere import near

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer, save
    from cutaway.verification import verify


__all__ = ["CutawayError", "StandardizedTransformer", "errors", "save", "verify", "vocabulary"]

_ROOMS = ("analysis", "families", "pictures", "reference")
"""Folders that are there as soon as they are asked for: `cutaway.pictures.attention(…)`."""

_HOME = {"StandardizedTransformer": "cutaway.model", "save": "cutaway.model", "verify": "cutaway.verification"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _ROOMS:
        return import_module(f"cutaway.{name}")
    raise errors.UnknownValueError(f"module 'cutaway' has no attribute '{name}'.{near(name, [*__all__, *_ROOMS])}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, *(name for name in globals() if name.startswith("__"))])
