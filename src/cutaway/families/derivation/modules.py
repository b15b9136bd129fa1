"""What a module is, by what it holds and what it was seen to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

_MIXERS = (
    "mamba",
    "delta",
    "conv",
    "recurrent",
    "rwkv",
    "lightning",
    "linearattention",
    "kda",
    "mlstm",
    "ssm",
    "mixer",
)
_MORE_MIXERS = ("timemix", "rglru", "shortconv")


def is_linear(module: nn.Module) -> bool:
    """Whether it is a projection: a matrix of its own, and nothing inside."""
    return not any(True for _ in module.children()) and any(p.ndim == 2 for p in module.parameters(recurse=False))


def is_norm(module: nn.Module) -> bool:
    """Whether it is a norm, or a norm for each head, by its name, and holds no more than vectors."""
    parts = [part for part in module.modules() if not isinstance(part, nn.ModuleList)]
    by_name = all("norm" in type(part).__name__.lower() for part in parts)
    return bool(parts) and by_name and all(p.ndim <= 1 for p in module.parameters())


def is_activation(module: nn.Module) -> bool:
    """Whether it is a function without weights."""
    leaf = not any(True for _ in module.children()) and not any(True for _ in module.parameters())
    return leaf and not isinstance(module, (nn.Dropout, nn.Identity))


def is_mixer(module: nn.Module, name: str) -> bool:
    """Whether it mixes tokens without attention: by the names of its class and place, or by a convolution inside."""
    own = (type(module).__name__.lower(), name.lower())
    if any(word in said for said in own for word in (*_MIXERS, *_MORE_MIXERS)) and "mlp" not in own[0]:
        return True
    return any(isinstance(part, nn.Conv1d) for part in module.modules())


def is_experts(module: nn.Module) -> bool:
    """Whether experts are in it, of which a token goes through some."""
    names = (type(part).__name__.lower() for part in module.modules())
    return any("experts" in name or isinstance(module, nn.ModuleList) for name in names)


def count(module: nn.Module) -> int:
    """How many parameters it has."""
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True)
class Recorder:
    """What transformers itself records under a name: the output of modules of some classes, at a place in it."""

    classes: frozenset[str]
    index: int


def recorders(model: nn.Module) -> dict[str, Recorder]:
    """What the classes of a model say can be recorded: `hidden_states`, `attentions`, `router_logits`."""
    found: dict[str, Recorder] = {}
    for module in model.modules():
        stated: dict[str, Any] = getattr(type(module), "_can_record_outputs", None) or {}
        for name, what in stated.items():
            found.setdefault(name, _recorder(what))
    return found


def _recorder(what: Any) -> Recorder:
    classes: set[str] = set()
    index, pending = 0, [what]
    while pending:
        one = pending.pop()
        if isinstance(one, (list, tuple)):
            pending.extend(one)  # pyright: ignore[reportUnknownArgumentType]
            continue
        index = getattr(one, "index", index)
        target: Any = getattr(one, "target_class", one)
        if isinstance(target, (list, tuple)):
            pending.extend(target)  # pyright: ignore[reportUnknownArgumentType]
        else:
            classes.add(getattr(target, "__name__", ""))
    return Recorder(frozenset(classes), index)
