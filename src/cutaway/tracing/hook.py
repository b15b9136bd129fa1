"""One of torch's hooks, which comes off whenever an interrupt comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from cutaway.errors import CutawayError


class _OfAPass:
    """A hook as it stands on a module: it is of a pass under way, and goes into no file.

    A copy of the module has the same hook, which answers in its own pass alone.
    """

    __slots__ = ("_hook",)

    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook

    def __call__(self, *args: Any) -> Any:
        return self._hook(*args)

    def __deepcopy__(self, memo: Any) -> _OfAPass:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise CutawayError(
            "the model cannot be pickled while a trace, a generation or hooks stand open on its modules. Do it outside "
            "the block, or save its weights alone: `model.hf.save_pretrained(folder)`, "
            "`torch.save(model.hf.state_dict(), file)`."
        )


class Hook:
    """One of torch's hooks, at a module's entrance or at its exit."""

    def __init__(self, module: nn.Module, hook: Callable[..., Any], *, at_entrance: bool, first: bool = False) -> None:
        self._module = module
        self._hook = _OfAPass(hook)
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
