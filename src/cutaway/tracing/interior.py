"""The attention interior: queries, keys, values, scores, pattern and head outputs, under every implementation.

transformers looks its attention function up by the name in `config._attn_implementation`. While something is attached
inside a model's attention, that name is one of ours, and our function serves what is asked and calls the real one. The
mask function registered under our name is the real implementation's, so the model builds the very same masks.

A fused kernel has no softmax to look at. A layer whose scores or pattern are asked, in that pass alone, therefore runs
its family's own eager function under a watch on `softmax` and `dropout`; every other layer keeps its kernel. Under a
load that is not eager, half-precision heads are widened to float32 for it, and the query is scaled before the product:
a fused kernel accumulates in float32 too, and phi-2's products pass float16's largest number by far. Under an eager
load the model's own arithmetic is kept bit for bit.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from cutaway.sites import Moment
from cutaway.tracing.masks import kernel_mask
from cutaway.tracing.softmax_watch import SoftmaxWatch, report_overflow

PREFIX = "cutaway:"


@dataclass(eq=False)
class Tap:
    """A callback on one moment of one attention module."""

    module: nn.Module
    moment: Moment
    callback: Callable[[Any], Any]
    answers: Callable[[], bool]
    removed: bool = False

    def remove(self) -> None:
        """Takes the tap off."""
        AttentionInterior.untap(self)


class AttentionInterior:
    """All taps of the process, and which configs are under our name because of them.

    The state is the process's, since transformers' registries are; the lock makes nested and concurrent traces agree.
    """

    _lock = threading.Lock()
    _taps: ClassVar[weakref.WeakKeyDictionary[nn.Module, list[Tap]]] = weakref.WeakKeyDictionary()
    _configs: ClassVar[dict[int, int]] = {}
    _originals: ClassVar[dict[int, str]] = {}
    in_force: ClassVar[dict[str, int]] = {}
    """How many configs are under our name for each implementation."""

    @classmethod
    def tap(cls, module: nn.Module, moment: Moment, callback: Callable[[Any], Any], answers: Callable[[], bool]) -> Tap:
        """Puts a tap on a moment of an attention module."""
        tap = Tap(module, moment, callback, answers)
        with cls._lock:
            cls._taps.setdefault(module, []).append(tap)
            config = _config(module)
            if cls._configs.setdefault(id(config), 0) == 0:
                cls._come_in_force(config)
            cls._configs[id(config)] += 1
        return tap

    @classmethod
    def untap(cls, tap: Tap) -> None:
        """Takes a tap off, and our name off the config with the last one."""
        with cls._lock:
            if tap.removed:
                return
            tap.removed = True
            taps = cls._taps[tap.module]
            taps.remove(tap)
            if not taps:
                del cls._taps[tap.module]
            config = _config(tap.module)
            cls._configs[id(config)] -= 1
            if cls._configs[id(config)] == 0:
                del cls._configs[id(config)]
                cls._go_out_of_force(config)

    @classmethod
    def reach(cls, module: nn.Module, moment: Moment, passing: Any) -> Any:
        """Serves everything tapped at this moment, and returns what is to pass on."""
        for tap in tuple(cls._taps.get(module, ())):
            if tap.moment == moment and tap.answers():
                changed = tap.callback(passing)
                passing = passing if changed is None else changed
        return passing

    @classmethod
    def is_watched(cls, module: nn.Module) -> bool:
        """Whether the call under way is asked for its scores or its pattern."""
        return any(tap.moment in ("softmax", "pattern") and tap.answers() for tap in cls._taps.get(module, ()))

    @classmethod
    def _come_in_force(cls, config: Any) -> None:
        from transformers import AttentionInterface, AttentionMaskInterface

        original = cls._originals[id(config)] = str(config._attn_implementation)
        if original not in cls.in_force:
            AttentionInterface.register(PREFIX + original, partial(_attention, original))
            masks = AttentionMaskInterface._global_mapping
            if original in masks:
                AttentionMaskInterface.register(PREFIX + original, masks[original])
        cls.in_force[original] = cls.in_force.get(original, 0) + 1
        config._attn_implementation_internal = _Name(original)

    @classmethod
    def _go_out_of_force(cls, config: Any) -> None:
        from transformers import AttentionInterface, AttentionMaskInterface

        original = cls._originals.pop(id(config))
        if isinstance(config._attn_implementation, _Name):
            config._attn_implementation_internal = original
        cls.in_force[original] -= 1
        if cls.in_force[original] == 0:
            del cls.in_force[original]
            AttentionInterface._global_mapping.pop(PREFIX + original, None)
            AttentionMaskInterface._global_mapping.pop(PREFIX + original, None)


class _Name(str):
    """Our name in a config: in transformers' registries it finds our function while that is in force, and then the
    real one.

    A forward of another thread may have read it from the config a moment before the last tap went. A copy of a config
    is under the real name.
    """

    __slots__ = ("_original", "_ours")

    def __new__(cls, original: str) -> Self:
        name = super().__new__(cls, PREFIX + original)
        name._ours = PREFIX + original
        name._original = original
        return name

    def _now(self) -> str:
        return self._ours if self._original in AttentionInterior.in_force else self._original

    def __hash__(self) -> int:
        return hash(self._now())

    def __eq__(self, other: object) -> bool:
        return self._now() == other

    def __ne__(self, other: object) -> bool:
        return self._now() != other

    def __deepcopy__(self, memo: Any) -> str:
        return self._original

    def __reduce__(self) -> tuple[Any, ...]:
        return (str, (self._original,))


def _config(module: nn.Module) -> Any:
    return module.config


@lru_cache(maxsize=256)
def _family_globals(attention: type[nn.Module]) -> dict[str, Any]:
    """The names of the file that defines an attention class, where its eager function and registry stand."""
    return inspect.unwrap(attention.forward).__globals__


def uses_interface(attention: type[nn.Module]) -> bool:
    """Whether an attention class looks its function up in transformers' interface, so that its interior can be had."""
    names = _family_globals(attention)
    return "ALL_ATTENTION_FUNCTIONS" in names and "eager_attention_forward" in names


def _attention(
    original: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Stands in for the implementation named `original`."""
    names = _family_globals(type(module))
    eager = names["eager_attention_forward"]
    heads = {"query": query, "key": key, "value": value}
    heads = AttentionInterior.reach(module, "arguments", heads)
    query, key, value = heads["query"], heads["key"], heads["value"]
    weights: Tensor | None
    if not AttentionInterior.is_watched(module):
        real = names["ALL_ATTENTION_FUNCTIONS"].get_interface(original, eager)
        result, weights = real(module, query, key, value, attention_mask, **kwargs)
    elif original == "eager":
        reach = partial(AttentionInterior.reach, module)
        with SoftmaxWatch(reach, on_scores=partial(report_overflow, module, query, key)):
            result, weights = eager(module, query, key, value, attention_mask, **kwargs)
    else:
        result, weights = _eager_in_place_of_a_kernel(eager, module, query, key, value, attention_mask, **kwargs)
    return AttentionInterior.reach(module, "result", result), weights


def _eager_in_place_of_a_kernel(
    eager: Callable[..., tuple[Tensor, Tensor | None]],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    dtype = query.dtype
    if dtype in (torch.float16, torch.bfloat16):
        query, key, value = query.float(), key.float(), value.float()
    scaling = kwargs.pop("scaling", None)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    is_causal = kwargs.get("is_causal")
    mask = kernel_mask(
        attention_mask, query, key, getattr(module, "is_causal", True) if is_causal is None else is_causal
    )
    with SoftmaxWatch(partial(AttentionInterior.reach, module)):
        result, weights = eager(module, query * scaling, key, value, mask.additive, scaling=1.0, **kwargs)
    if mask.empty is not None:
        result = result.masked_fill(mask.empty.transpose(1, 2)[..., None], 0)
    return result.to(dtype), weights
