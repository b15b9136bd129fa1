"""One pass of a model's twin on the meta device: who was called with what, and what was made of what."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
)

from cutaway.errors import UnsupportedModelError

BATCH, SEQ = 3, 7
"""The size of the call; a stream has the shape `[3 7 hidden_size]`."""

_PROBE = "cutaway:propose"
_ADD = {"add", "__add__", "__radd__", "__iadd__", "add_"}
_MULTIPLY = {"mul", "__mul__", "__rmul__", "multiply"}
_SAME = {"contiguous", "dropout", "reshape", "to", "type", "type_as", "view"}
"""Functions whose result, where it has the shape of what they were given, is that thing still."""


@dataclass(frozen=True)
class Called:
    """One call of a module: its argument's name, and the first tensors that entered and left."""

    path: str
    module: nn.Module
    argument: str
    given: Tensor | None
    returned: Tensor | None


@dataclass(frozen=True)
class Attended:
    """One call of the attention function: the shapes of query, key and value, and what was seen inside."""

    query: torch.Size
    key: torch.Size
    value: torch.Size
    softmaxes: int
    dropouts: int


@dataclass
class Recording:
    """What a pass came by. Calls are in the order in which they ended; tensors are told by their identity."""

    twin: PreTrainedModel
    calls: list[Called] = field(default_factory=list[Called])
    attended: dict[str, Attended] = field(default_factory=dict[str, Attended])
    sums: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict[int, tuple[Tensor, Tensor]])
    products: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict[int, tuple[Tensor, Tensor]])
    multiples: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    kept: list[Any] = field(default_factory=list[Any])
    _same: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    _seen: list[str] = field(default_factory=list[str])

    def origin(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or the one that it is but for a dropout or a view."""
        while id(tensor) in self._same and self._same[id(tensor)] is not tensor:
            tensor = self._same[id(tensor)]
        return tensor

    def is_(self, one: Tensor | None, other: Tensor | None) -> bool:
        """Whether two are the same tensor, but for dropouts and views."""
        return one is not None and other is not None and self.origin(one) is self.origin(other)

    def call_of(self, path: str) -> Called | None:
        """The last call of the module at a path."""
        return next((call for call in reversed(self.calls) if call.path == path), None)


def record(model: PreTrainedModel | PretrainedConfig) -> Recording:
    """Runs the twin of a model once.

    Raises:
        UnsupportedModelError: it does not run on the meta device.
    """
    twin, failure = _twin(model), None
    # A mask of four axes is taken as it is by most; the others want one of two, whose zeros they look for.
    masks = torch.ones(BATCH, 1, SEQ, SEQ, dtype=torch.bool), torch.ones(BATCH, SEQ, dtype=torch.long)
    for mask in masks:
        recording = Recording(twin)
        try:
            _run(recording, mask.to("meta"))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            failure = error
        else:
            return recording
    reason = str(failure).strip().partition("\n")[0]
    raise UnsupportedModelError(
        f"{type(twin).__name__} does not run on the meta device, so no file can be drafted: {reason}"
    )


def _run(recording: Recording, mask: Tensor) -> None:
    twin: Any = recording.twin
    paths: dict[nn.Module, str] = {module: path for path, module in twin.named_modules()}
    handles = [module.register_forward_hook(_note(recording, path), with_kwargs=True) for module, path in paths.items()]
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long, device="meta")
    try:
        with torch.no_grad(), _probed(recording, paths), _Watch(recording):
            twin(input_ids=ids, attention_mask=mask, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()


def _twin(model: PreTrainedModel | PretrainedConfig) -> PreTrainedModel:
    """On the meta device, in bfloat16, which torch's fused kernels for experts ask for."""
    made_by: Any = type(model)._from_config if isinstance(model, PreTrainedModel) else AutoModelForCausalLM.from_config
    config = copy.deepcopy(model.config if isinstance(model, PreTrainedModel) else model)
    with torch.device("meta"):
        twin: PreTrainedModel = made_by(config, attn_implementation="eager", dtype=torch.bfloat16).eval()
    for module in twin.modules():
        if vars(module).get("rope_type") == "dynamic":
            vars(module)["rope_type"] = "default"  # it would look at the numbers of positions, of which there are none
    return twin


def _note(recording: Recording, path: str) -> Any:
    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        names = list(inspect.signature(module.forward).parameters)
        passed = {**dict(zip(names, args, strict=False)), **kwargs}
        tensors = {name: value for name, value in passed.items() if isinstance(value, Tensor)}
        argument = next(iter(tensors), "")
        returned = output[0] if isinstance(output, tuple) and output else output
        returned = returned if isinstance(returned, Tensor) else None
        recording.kept += [tensors, returned]
        recording.calls.append(Called(path, module, argument, tensors.get(argument), returned))

    return note


@contextmanager
def _probed(recording: Recording, paths: dict[nn.Module, str]) -> Generator[None]:
    """Has the twin call an attention function of ours, which notes the call and runs the family's own eager one."""

    def attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any) -> Any:
        eager = inspect.unwrap(type(module).forward).__globals__["eager_attention_forward"]
        before = len(recording._seen)
        result = eager(module, query, key, value, mask, **kwargs)
        seen = recording._seen[before:]
        counts = seen.count("softmax"), seen.count("dropout")
        recording.attended.setdefault(paths[module], Attended(query.shape, key.shape, value.shape, *counts))
        return result

    config = recording.twin.config
    AttentionInterface.register(_PROBE, attention)
    AttentionMaskInterface.register(_PROBE, AttentionMaskInterface._global_mapping["eager"])
    config._attn_implementation_internal = _PROBE
    try:
        yield
    finally:
        config._attn_implementation_internal = "eager"
        del AttentionInterface._global_mapping[_PROBE], AttentionMaskInterface._global_mapping[_PROBE]


class _Watch(TorchFunctionMode):
    """Notes sums, products, and what is the same tensor under another name."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        recording = self._recording
        recording._seen.append(name)
        if not isinstance(result, Tensor) or not args or not isinstance(args[0], Tensor):
            return result
        recording.kept += [args, result]
        both = len(args) > 1 and isinstance(args[1], Tensor) and args[0].shape == args[1].shape
        if name in _ADD and both:
            recording.sums[id(result)] = (args[0], args[1])
        elif name in _MULTIPLY and both:
            recording.products[id(result)] = (args[0], args[1])
        elif name in _MULTIPLY and len(args) > 1 and not isinstance(args[1], Tensor):
            recording.multiples[id(result)] = args[0]
        elif name in _SAME and result is not args[0] and result.shape == args[0].shape:
            recording._same[id(result)] = args[0]
        return result
