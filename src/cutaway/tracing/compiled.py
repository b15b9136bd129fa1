"""Running what `torch.compile` has compiled as it is written, while something is attached to it.

A compiled module runs as one piece, with no moment inside it at which a pass could wait. There are three ways to have
one: `module.compile()`, which keeps the compiled call beside the module's own; `torch.compile(module)`, a module that
stands in for another; and `module.forward = torch.compile(module.forward)`. While a pass of ours is open on a model,
its compiled modules run as written; the compiled code is kept, and is in force again when the last pass is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from torch import nn

_ABSENT = object()
_Replaced = tuple[nn.Module, str, Any, Any]
"""Module, attribute, what was there, what is."""


def is_stand_in(module: nn.Module) -> bool:
    """Whether a module is what `torch.compile(module)` made of another, which it holds as `_orig_mod`."""
    return type(module).__name__ == "OptimizedModule" and "_orig_mod" in module._modules


def as_written(module: nn.Module) -> dict[str, Any]:
    """Attributes with which a compiled module runs as it is written; empty for one that is not compiled."""
    own = vars(module)
    instead: dict[str, Any] = {}
    if own.get("_compiled_call_impl") is not None:
        instead["_compiled_call_impl"] = None
    forward = own.get("forward")
    if is_stand_in(module):
        instead["forward"] = _Calls(module.get_submodule("_orig_mod"))
    elif forward is not None and _is_compiled(forward):
        instead["forward"] = _written(forward)
    return instead


class AsWritten:
    """Has a model's compiled modules run as they are written until it is removed. They may be several at once.

    Args:
        model: the model, whose they are.
        modules: all its modules, where they are known.
    """

    _lock = threading.RLock()
    _open: ClassVar[WeakKeyDictionary[nn.Module, tuple[list[AsWritten], list[_Replaced]]]] = WeakKeyDictionary()
    """By model: those that are on, and what they replaced."""

    def __init__(self, model: nn.Module, modules: Iterable[nn.Module] | None = None) -> None:
        self._model = model
        self._modules = modules

    def put_on(self) -> None:
        """Has them run as they are written."""
        with self._lock:
            on, replaced = self._open.setdefault(self._model, ([], []))
            on.append(self)
            if len(on) == 1:
                _replace(self._model.modules() if self._modules is None else self._modules, replaced)

    def remove(self) -> None:
        """Puts the compiled code back, with the last one of its model; may be called again."""
        with self._lock:
            on, replaced = self._open.get(self._model, ([], []))
            if self in on:
                on.remove(self)
            if on:
                return
            for module, attribute, was, instead in replaced:
                if vars(module).get(attribute, _ABSENT) is instead:
                    vars(module)[attribute] = was
            self._open.pop(self._model, None)


def _replace(modules: Iterable[nn.Module], replaced: list[_Replaced]) -> None:
    """Puts what is as written in the place of what is compiled, each noted in `replaced` first."""
    # Told apart in one expression: every pass looks at every module.
    found = [m for m in modules if "forward" in m.__dict__ or "_compiled_call_impl" in m.__dict__]
    for module in found:
        for attribute, instead in as_written(module).items():
            replaced.append((module, attribute, vars(module)[attribute], instead))
            vars(module)[attribute] = instead


class _Calls:
    """A forward that calls another module."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._module(*args, **kwargs)


def _is_compiled(forward: Any) -> bool:
    """Whether a function is torch's wrapper itself, and not one that took over its attributes, as decorators do."""
    return getattr(forward, "_torchdynamo_wrapper_id", None) == id(forward)


def _written(forward: Any) -> Callable[..., Any]:
    while _is_compiled(forward):
        forward = forward._torchdynamo_orig_callable
    return forward
