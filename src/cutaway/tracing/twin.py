"""A model's twin on the meta device: the same modules and config, no weights, no compute."""

from __future__ import annotations

import copy
from collections import OrderedDict

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

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
        memo[id(parameter)] = nn.Parameter(_on_meta(parameter), requires_grad=False)
    for buffer in model.buffers():
        memo[id(buffer)] = _on_meta(buffer)
    for module in model.modules():
        for hooks in _HOOKS:
            memo[id(getattr(module, hooks))] = OrderedDict()
        for value in vars(module).values():
            if isinstance(value, Tensor):
                memo[id(value)] = _on_meta(value)
    twin = copy.deepcopy(model, memo)
    for module in twin.modules():
        for name in _PUT_ON_ONE_MODULE:
            module.__dict__.pop(name, None)
        if vars(module).get("rope_type") == "dynamic":
            vars(module)["rope_type"] = "default"  # it would look at the numbers of positions, of which there are none
    return twin


def is_sharded(model: PreTrainedModel) -> bool:
    """Whether a model's weights are spread over several processes by tensor parallelism."""
    return any(hasattr(parameter, "placements") for parameter in model.parameters())


def _on_meta(tensor: Tensor) -> Tensor:
    return tensor.detach().to("meta")
