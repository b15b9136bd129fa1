"""The attention interior: queries, keys, values, scores, pattern and head outputs, under every implementation.

A modelling file asks transformers' registry for its attention function at every call of an attention module: by the
name in the config, and with the file's own eager function to fall back on. While something is attached inside a model's
attention, the registry that its file asks answers with a stand-in. That serves what is asked of this module in this
pass, and calls what the registry would have given; for every other module, model and thread it does nothing else. The
config keeps its name, so that the masks, and whatever else a model makes depend on it, are the very same.

An attention that calls no function of the registry has its own forward watched: its scores and pattern are had there.

A fused kernel has no softmax to look at: a layer whose scores or pattern are asked, in that pass alone, runs its
family's own eager function beside it, see `beside_kernel`. Under an eager load the model's own arithmetic is kept bit
for bit.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

from torch import Tensor, nn

from cutaway.errors import UnavailableValueError
from cutaway.sites import MOMENTS, OF_SOFTMAX, Moment
from cutaway.tracing.beside_kernel import Attention, beside_a_kernel
from cutaway.tracing.overlays import lay, lift
from cutaway.tracing.softmax_watch import SoftmaxWatch, report_overflow, watched


@dataclass(eq=False)
class Tap:
    """A callback on one moment of one attention module."""

    module: nn.Module
    moment: Moment
    callback: Callable[[Any], Any]
    answers: Callable[[], bool]

    def put_on(self) -> None:
        """Puts the tap on.

        Raises:
            UnavailableValueError: the module's class calls attention past transformers' interface.
        """
        AttentionInterior.tap(self)

    def remove(self) -> None:
        """Takes the tap off; does nothing if it is off already."""
        AttentionInterior.untap(self)


class AttentionInterior:
    """All taps of the process.

    The state is the process's, since transformers' registries are; the lock makes nested and concurrent traces agree.
    """

    _lock = threading.RLock()
    _taps: ClassVar[weakref.WeakKeyDictionary[nn.Module, list[Tap]]] = weakref.WeakKeyDictionary()
    _watches: ClassVar[weakref.WeakKeyDictionary[nn.Module, _ForwardWatch]] = weakref.WeakKeyDictionary()

    @classmethod
    def tap(cls, tap: Tap) -> None:
        """Puts a tap on, and a stand-in on the registry with the first one.

        Raises:
            UnavailableValueError: the module's class calls attention past transformers' interface.
        """
        of = type(tap.module)
        if not uses_interface(of) and tap.moment not in OF_SOFTMAX:
            raise UnavailableValueError(
                f"{of.__name__} does not look its attention function up in transformers' attention "
                "interface, so what is inside it cannot be had. The calls in its forward can: `.source`."
            )
        with cls._lock:
            cls._taps.setdefault(tap.module, []).append(tap)
            if uses_interface(of):
                _LookUp.stand_in(_registry(of))
            else:
                cls._watches.setdefault(tap.module, _ForwardWatch(tap.module))
                lay(tap.module, cls._watches[tap.module])

    @classmethod
    def untap(cls, tap: Tap) -> None:
        """Takes a tap off, and the stand-in off the registry with the last one."""
        with cls._lock:
            taps = cls._taps.get(tap.module, [])
            if tap in taps:
                taps.remove(tap)
            if taps:
                return
            cls._taps.pop(tap.module, None)
            if tap.module in cls._watches:
                lift(tap.module, cls._watches[tap.module])
                cls._watches.pop(tap.module, None)
                return
            registry = _registry(type(tap.module))
            if not any(_registry(type(module)) is registry for module in cls._taps):
                _LookUp.stand_down(registry)

    @classmethod
    def is_tapped(cls, module: nn.Module, moments: Container[Moment] = MOMENTS) -> bool:
        """Whether the call under way is asked for something at one of these moments."""
        return any(tap.moment in moments and tap.answers() for tap in tuple(cls._taps.get(module, ())))

    @classmethod
    def reach(cls, module: nn.Module, moment: Moment, passing: Any) -> Any:
        """Serves everything tapped at this moment, and returns what is to pass on."""
        for tap in tuple(cls._taps.get(module, ())):
            if tap.moment == moment and tap.answers():
                changed = tap.callback(passing)
                passing = passing if changed is None else changed
        return passing


class _ForwardWatch:
    """The overlay: the forward of an attention that calls no function of the registry, under a watch."""

    outermost = False

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)

    def call(self, below: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the forward, watched if a tap is meant for the call under way."""
        module = self._module()
        if module is None or not AttentionInterior.is_tapped(module):
            return below(*args, **kwargs)
        return watched(SoftmaxWatch(partial(AttentionInterior.reach, module)), below, *args, **kwargs)


class _LookUp:
    """Stands in for a registry's `get_interface`: gives a stand-in for what that gives.

    It lies on the one registry as an attribute of it; the class is left alone.
    """

    def __init__(self, registry: Any) -> None:
        self._real: Callable[[str, Attention], Attention] = registry.get_interface
        self._stand_ins: dict[tuple[Attention, Attention], Attention] = {}
        functools.update_wrapper(self, self._real)

    def __call__(self, attn_implementation: str, default: Attention) -> Attention:
        real = self._real(attn_implementation, default)
        known = self._stand_ins.get((real, default))
        return known or self._stand_ins.setdefault((real, default), _standing_in(real, default))

    @classmethod
    def stand_in(cls, registry: Any) -> None:
        """Has a registry ask us; does nothing if it does so already."""
        if not isinstance(vars(registry).get("get_interface"), cls):
            registry.get_interface = cls(registry)

    @classmethod
    def stand_down(cls, registry: Any) -> None:
        """Gives a registry its own method back."""
        if isinstance(vars(registry).get("get_interface"), cls):
            del registry.get_interface


@lru_cache(maxsize=256)
def _registry(attention: type[nn.Module]) -> Any:
    """The registry that an attention class's file asks, transformers' own or one of the file's; None where there is
    none.

    A class whose `forward` goes on to its parent's is served by its parent's file.
    """
    for parent in attention.__mro__:
        forward = vars(parent).get("forward")
        found = getattr(inspect.unwrap(forward), "__globals__", {}) if forward is not None else {}
        if "ALL_ATTENTION_FUNCTIONS" in found:
            return found["ALL_ATTENTION_FUNCTIONS"]
    return None


def uses_interface(attention: type[nn.Module]) -> bool:
    """Whether an attention class looks its function up in transformers' interface, so that its interior can be had."""
    return _registry(attention) is not None


def _standing_in(real: Attention, eager: Attention) -> Attention:
    """What stands in for an attention function, in a file whose own eager one is `eager`."""

    @functools.wraps(real)
    def attention(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        if not AttentionInterior.is_tapped(module):
            return real(module, *args, **kwargs)
        return _served(real, eager, module, *args, **kwargs)

    return attention


def _served(
    real: Attention,
    eager: Attention,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Calls an attention function, and serves what is tapped on its way."""
    heads = {"query": query, "key": key, "value": value}
    heads = AttentionInterior.reach(module, "arguments", heads)
    call = (module, heads["query"], heads["key"], heads["value"], attention_mask)
    weights: Tensor | None
    if not AttentionInterior.is_tapped(module, OF_SOFTMAX):
        result, weights = real(*call, **kwargs)
    elif real is eager:
        reach = partial(AttentionInterior.reach, module)
        watch = SoftmaxWatch(reach, on_scores=partial(report_overflow, module, call[1], call[2]))
        result, weights = watched(watch, eager, *call, **kwargs)
    else:
        result, weights = beside_a_kernel(real, eager, partial(AttentionInterior.reach, module), call, kwargs)
    return AttentionInterior.reach(module, "result", result), weights
