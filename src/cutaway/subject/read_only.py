"""A tensor that shares a parameter's memory and refuses to be written into.

It computes as any tensor does; what is a view of it is read-only too, and what is computed from it is a plain tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from cutaway.errors import ReadOnlyError

_SIGNS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_ASSIGNING = {"__setitem__", *(f"__i{sign}__" for sign in _SIGNS)}
_HARMLESS = {"requires_grad_", "retain_grad", "is_shared"}


class ReadOnlyTensor(Tensor):
    """A view of a parameter. `clone()` gives a tensor of one's own."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if _writes(func, args, given):
            raise ReadOnlyError(
                "a weight under its standard name is a view of the model's parameter and cannot be written into: the "
                "model itself would change. Work on a copy, `.clone()`. To change the model, write into the parameter "
                "under its own name, under `torch.no_grad()`: `model.layers[0].self_attn.o_proj.weight`."
            )
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **given)
        name = getattr(func, "__name__", "")
        if isinstance(result, np.ndarray):
            result.flags.writeable = False
            return result
        if name in ("__get__", "__set__") and not isinstance(result, Tensor):
            return result
        memory = {_memory(leaf) for leaf in tree_leaves((args, given)) if isinstance(leaf, ReadOnlyTensor)}
        return tree_map(partial(_guarded, memory), result)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.clone().__reduce_ex__(protocol)


def read_only(tensor: Tensor) -> Tensor:
    """The same memory, without autograd's record, not to be written into."""
    return tensor.detach().as_subclass(ReadOnlyTensor)


def _guarded(memory: set[int], leaf: Any) -> Any:
    if type(leaf) is Tensor and _memory(leaf) in memory:
        return leaf.as_subclass(ReadOnlyTensor)
    return leaf


def _memory(tensor: Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.untyped_storage()._cdata


def _writes(func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a function of torch writes into a read-only tensor."""
    if any(isinstance(leaf, ReadOnlyTensor) for leaf in tree_leaves(kwargs.get("out"))):
        return True
    first = args[0] if args else kwargs.get("input")
    if not any(isinstance(leaf, ReadOnlyTensor) for leaf in tree_leaves(first)):
        return False
    name = getattr(func, "__name__", "")
    if name == "__set__":
        return getattr(func, "__self__", None) is Tensor.data
    in_place = name.endswith("_") and not name.endswith("__") and name not in _HARMLESS
    return in_place or name in _ASSIGNING or bool(kwargs.get("inplace"))
