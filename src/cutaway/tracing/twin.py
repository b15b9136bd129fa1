"""A model's twin on the meta device: the same modules and config, no weights, no compute."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cutaway.tracing.compiled import as_written, is_stand_in

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
STANDS_FOR = "_cutaway_carrier"
"""Where a model that stands in for another, and carries edits into it, holds what has that other as its `hf`."""
_PUT_ON_ONE_MODULE = ("forward", "_old_forward", "_hf_hook")
"""What a pass of ours, or accelerate, puts on a module; it would call that module and not the copy."""


def meta_twin(model: PreTrainedModel) -> PreTrainedModel:
    """Copies a model's structure onto the meta device, leaving weights and hooks behind.

    The copy is of this model as it stands, with modules that were exchanged or packed, not of its class. Hooks are not
    even copied: what they belong to may be large, or refuse.
    """
    stands_in = vars(model).get(STANDS_FOR)
    if stands_in is not None:
        return meta_twin(stands_in.hf)
    if is_sharded(model):
        with torch.device("meta"):
            return type(model)._from_config(copy.deepcopy(model.config)).eval()
    memo: dict[int, object] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = _parameter_on_meta(parameter)
    for buffer in model.buffers():
        memo[id(buffer)] = _on_meta(buffer)
    for module in model.modules():
        for hooks in _HOOKS:
            memo[id(getattr(module, hooks))] = OrderedDict()
        if is_stand_in(module):
            compiler = vars(module)["dynamo_ctx"]
            memo[id(compiler)] = compiler
        for value in vars(module).values():
            for tensor in _tensors_of(value):
                memo.setdefault(id(tensor), _on_meta(tensor))
    twin = copy.deepcopy(model, memo)
    for module in twin.modules():
        written = as_written(module)
        for name in _PUT_ON_ONE_MODULE:
            module.__dict__.pop(name, None)
        if is_stand_in(module):
            vars(module).update(written)
        if vars(module).get("rope_type") == "dynamic":
            vars(module)["rope_type"] = "default"  # it would look at the numbers of positions, of which there are none
    return twin


def _tensors_of(value: Any) -> list[Tensor]:
    """An attribute that is a tensor, or the tensors right in an object that is one, as a quantised layer keeps."""
    inside = [] if isinstance(value, (nn.Module, type)) else vars(value).values() if hasattr(value, "__dict__") else []
    return [tensor for tensor in (value, *inside) if isinstance(tensor, Tensor)]


def _parameter_on_meta(parameter: nn.Parameter) -> nn.Parameter:
    """A parameter of the same class, with what the class keeps beside the numbers, as quantised ones do."""
    data = _on_meta(parameter)
    kind = type(parameter)
    if kind is nn.Parameter:
        return nn.Parameter(data, requires_grad=False)
    try:
        same: nn.Parameter = torch.Tensor._make_subclass(kind, data, False)
    except (RuntimeError, TypeError):  # a tensor class that has no numbers of its own
        return nn.Parameter(data, requires_grad=False)
    for name, value in vars(parameter).items():
        setattr(same, name, _on_meta(value) if isinstance(value, Tensor) else value)
    return same


def is_sharded(model: PreTrainedModel) -> bool:
    """Whether a model's weights are spread over several processes by tensor parallelism."""
    return any(hasattr(parameter, "placements") for parameter in model.parameters())


def _on_meta(tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided:
        return tensor.detach().to("meta")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
