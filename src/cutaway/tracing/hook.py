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

    def put_on(self) -> None:
        """Registers the hook."""
        if self._at_entrance:
            self._module.register_forward_pre_hook(self._hook, with_kwargs=True, prepend=self._first)
        else:
            self._module.register_forward_hook(self._hook)

    def remove(self) -> None:
        """Takes the hook off by what it is: an interrupt may have come between its registration and the handle."""
        module = self._module
        hooks = module._forward_pre_hooks if self._at_entrance else module._forward_hooks
        for key, hook in tuple(hooks.items()):
            if hook is self._hook:
                module._forward_pre_hooks_with_kwargs.pop(key, None)
                hooks.pop(key, None)
