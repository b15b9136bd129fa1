"""Models inside what wraps them: adapters, compiled models, and those spread by torch over several devices."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn
from transformers import PreTrainedModel

from cutaway.errors import LoadError
from cutaway.tracing.compiled import is_stand_in


class Unwrapped(NamedTuple):
    """A transformers model, and what it was taken out of, from the outside in."""

    hf: PreTrainedModel
    wrappers: tuple[nn.Module, ...]


def unwrapped(source: nn.Module) -> Unwrapped:
    """The transformers model inside a module. Adapters that were put into its layers stay there, and stay active.

    Raises:
        LoadError: there is none, or what wraps it does more than call it; the message says what to give instead.
    """
    wrappers: list[nn.Module] = []
    inner: Any = source
    while not isinstance(inner, PreTrainedModel):
        wrappers.append(inner)
        inner = _inside(inner)
    return Unwrapped(inner, tuple(wrappers))


def _inside(module: Any) -> Any:
    if is_stand_in(module):
        return module._orig_mod
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return module.module
    if any(cls.__module__.split(".")[0] == "peft" for cls in type(module).__mro__):
        return _without_adapter_model(module)
    name = type(module).__name__
    held = [path for path, child in module.named_modules() if isinstance(child, PreTrainedModel)]
    instead = f" It holds one at `.{held[0]}`: give that one." if held else ""
    raise LoadError(f"a {name} is no transformers model.{instead}")


def _without_adapter_model(module: Any) -> Any:
    """The model of a `PeftModel`, its layers with their adapters."""
    active = getattr(module, "active_peft_config", None)
    if getattr(active, "is_prompt_learning", False):
        raise LoadError(
            f"this {type(module).__name__} puts vectors of its own before each prompt "
            f"({type(active).__name__}), which the model alone does not have. Give its `get_base_model()` to look at "
            "the model without them; adapters inside the layers, as LoRA's, are served."
        )
    return module.get_base_model() if hasattr(module, "get_base_model") else module.model
