"""One of torch's hooks, which comes off whenever an interrupt comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class Hook:
    """One of torch's hooks, at a module's entrance or at its exit."""

    def __init__(self, module: nn.Module, hook: Callable[..., Any], *, at_entrance: bool, first: bool = False) -> None:
        self._module = module
        self._hook = hook
        self._at_entrance = at_entrance
        self._first = first
        self._key: int | None = None

    def put_on(self) -> None:
        """Registers the hook."""
        if self._at_entrance:
            module = self._module
            handle = module.register_forward_pre_hook(self._hook, with_kwargs=True, prepend=self._first)
        else:
            handle = self._module.register_forward_hook(self._hook)
        self._key = handle.id

    def remove(self) -> None:
        """Takes the hook off: by its key, or by what it is where an interrupt came before the key was known."""
        module = self._module
        hooks = module._forward_pre_hooks if self._at_entrance else module._forward_hooks
        keys = [key for key, hook in tuple(hooks.items()) if hook is self._hook] if self._key is None else [self._key]
        for key in keys:
            if hooks.get(key) is self._hook:
                if self._at_entrance:
                    module._forward_pre_hooks_with_kwargs.pop(key, None)
                hooks.pop(key, None)
