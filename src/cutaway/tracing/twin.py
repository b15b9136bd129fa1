"""A model's twin on the meta device: the same modules and config, no weights, no compute."""

from __future__ import annotations

import copy

from torch import Tensor, nn
from transformers import PreTrainedModel

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def meta_twin(model: PreTrainedModel) -> PreTrainedModel:
    """Copies a model's structure onto the meta device, leaving weights and hooks behind.

    The copy is of this model as it stands, with modules that were exchanged or packed, not of its class.
    """
    memo: dict[int, object] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(_on_meta(parameter), requires_grad=False)
    for buffer in model.buffers():
        memo[id(buffer)] = _on_meta(buffer)
    twin = copy.deepcopy(model, memo)
    for module in twin.modules():
        for hooks in _HOOKS:
            getattr(module, hooks).clear()
        _leave_offloading_behind(module)
    return twin


def _leave_offloading_behind(module: nn.Module) -> None:
    """Takes off what accelerate puts on a module to bring its weights when it is called."""
    if "_hf_hook" in module.__dict__:
        module.__dict__.pop("_hf_hook")
        module.__dict__.pop("_old_forward", None)
        module.__dict__.pop("forward", None)


def _on_meta(tensor: Tensor) -> Tensor:
    return tensor.detach().to("meta")
