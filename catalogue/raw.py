"""Plain torch at the places that a family names: what Cutaway reads and edits there, done without it.

An address of Cutaway's says a module, a moment and a tensor's place in what passes. Here the same tensor is had by
torch's forward hooks; inside attention, by a wrapper around the very function that the modelling file calls; at the
softmax, by a function mode that sees the one call of it in the module's forward.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

Act = Callable[[Tensor], Tensor | None]
"""What is done with a tensor as it passes; what it returns passes on in its stead."""

OF_SOFTMAX = ("softmax", "softmax result", "pattern")
"""The moments that are not there under a kernel that has no softmax to look at."""

_SOFTMAX = (torch.softmax, Tensor.softmax, nn.functional.softmax)
_ARGUMENTS = ("query", "key", "value")


@dataclass(frozen=True, eq=False)
class Spot:
    """A tensor that passes at a moment of a module's call.

    Attributes:
        path: the value's path in Cutaway.
        module: the module.
        moment: `output`, `input`, `stream` (an input that also passes by), `argument` and `result` of the attention
            function, `softmax` and `softmax result`, what enters it and leaves it, and `pattern`, what leaves the
            dropout behind it.
        key: which of what passes.
        first: whether an argument may come by position.
        swapped: whether Cutaway shows the second and third axes the other way round.
        columns: `keys` or `sink`, where the softmax is over both; `gate`, where it lies behind each head's query.
        heads: how many heads lie side by side, where a gate does.
    """

    path: str
    module: nn.Module
    moment: str
    key: str | int = 0
    first: bool = True
    swapped: bool = False
    columns: str = ""
    heads: int = 0


_MOMENTS = {
    "exit": "output",
    "token rows out": "output",
    "enter": "input",
    "token rows in": "input",
    "stream": "stream",
    "stream of token rows": "stream",
    "arguments": "argument",
    "result": "result",
    "softmax": "softmax",
    "softmax result": "softmax result",
    "pattern": "pattern",
}


def spot_of(path: str, address: Any) -> Spot:
    """The spot of an address of Cutaway's."""
    slot, moment = address.slot, _MOMENTS[address.moment]
    heads = address.sizes["num_heads"] if slot.columns == "gate" else 0
    return Spot(path, address.module, moment, slot.key, slot.is_first, slot.swapped, slot.columns, heads)


def part_of(spot: Spot, tensor: Tensor) -> Tensor:
    """The part of what passes that is meant, as a view of it."""
    if spot.columns == "gate":
        return tensor.unflatten(-1, (spot.heads, -1)).chunk(2, dim=-1)[1]
    return {"": tensor, "keys": tensor[..., :-1], "sink": tensor[..., -1]}[spot.columns]


def as_shown(spot: Spot, tensor: Tensor, like: Tensor) -> Tensor | None:
    """A tensor as it passes at a spot, in the axes in which Cutaway shows it; None where it has another number of
    entries."""
    tensor = part_of(spot, tensor)
    if tensor.numel() != like.numel():
        return None
    return tensor.reshape(like.transpose(1, 2).shape).transpose(1, 2) if spot.swapped else tensor.reshape(like.shape)


def once(hf: nn.Module, spots: Iterable[Spot], inputs: Mapping[str, Any]) -> list[Spot]:
    """Those of the spots that one pass comes by once: of others it could not be said which is meant."""
    spots, count = list(spots), Counter[str]()
    run(hf, inputs, {spot: lambda _, path=spot.path: count.update([path]) for spot in spots})
    return [spot for spot in spots if count[spot.path] == 1]


def seen(hf: nn.Module, spots: Iterable[Spot], inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Copies of what passes at each spot."""
    found: dict[str, Tensor] = {}

    def note(path: str) -> Act:
        def act(tensor: Tensor) -> None:
            found[path] = tensor.detach().clone()

        return act

    run(hf, inputs, {spot: note(spot.path) for spot in spots})
    return found


def run(hf: nn.Module, inputs: Mapping[str, Any], acts: Mapping[Spot, Act], *, grad: bool = False) -> Tensor:
    """What the plain model returns, its logits if it has any, with something done at spots."""
    with attached(hf, acts), torch.set_grad_enabled(grad):
        return result_of(hf(**inputs))


def result_of(output: Any) -> Tensor:
    """The logits in what a model returns; of one that has none, the first tensor."""
    logits = output.get("logits") if isinstance(output, Mapping) else None
    return logits if isinstance(logits, Tensor) else next(t for t in tree_leaves(output) if isinstance(t, Tensor))


@contextmanager
def attached(hf: nn.Module, acts: Mapping[Spot, Act]) -> Generator[None]:
    """Has something done at spots in the passes inside the block."""
    inner = {spot: act for spot, act in acts.items() if spot.moment in ("argument", "result")}
    softmax = {spot: act for spot, act in acts.items() if spot.moment in OF_SOFTMAX}
    with ExitStack() as stack:
        for spot, act in acts.items():
            if spot.moment == "output":
                stack.callback(spot.module.register_forward_hook(_at_output(spot, act)).remove)
            elif spot.moment in ("input", "stream"):
                hook = spot.module.register_forward_pre_hook(_at_input(spot, act), with_kwargs=True)
                stack.callback(hook.remove)
        if inner:
            stack.enter_context(_around_attention(hf, inner))
        if softmax:
            stack.enter_context(_Softmax(softmax, stack))
        yield


def _at_output(spot: Spot, act: Act) -> Callable[..., Any]:
    def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
        if isinstance(output, Tensor):
            return act(output)
        key = spot.key if isinstance(output, Mapping) or isinstance(spot.key, int) else 0
        new = act(output[key])
        return output if new is None else _with(output, key, new)

    return hook


def _with(output: Any, key: Any, new: Tensor) -> Any:
    if isinstance(output, Mapping):
        output[key] = new  # type: ignore[index]
        return output
    items = [new if number == key else item for number, item in enumerate(output)]
    return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)


def _at_input(spot: Spot, act: Act) -> Callable[..., Any]:
    def hook(_module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        by_name = spot.key in kwargs
        given = kwargs[spot.key] if by_name else args[0] if spot.first and args else None
        if not isinstance(given, Tensor):
            return None
        new = act(given)
        if new is None:
            return None
        if spot.moment == "stream":
            given.copy_(new)  # what passes by the module is this very tensor
            return None
        return (args, {**kwargs, spot.key: new}) if by_name else ((new, *args[1:]), kwargs)

    return hook


@contextmanager
def _around_attention(hf: Any, acts: Mapping[Spot, Act]) -> Generator[None]:
    """Exchanges the attention function of the load for one that calls it, under the same name."""
    kernel = hf.config._attn_implementation
    at: dict[int, list[tuple[Spot, Act]]] = {}
    for spot, act in acts.items():
        at.setdefault(id(spot.module), []).append((spot, act))

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def attention(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            given = list(args)
            here = at.get(id(module), [])
            for spot, act in here:
                if spot.moment == "argument":
                    number = _ARGUMENTS.index(str(spot.key))
                    by_name = number >= len(given)
                    new = act(kwargs[str(spot.key)] if by_name else given[number])
                    if new is not None and by_name:
                        kwargs[str(spot.key)] = new
                    elif new is not None:
                        given[number] = new
            result, *rest = function(module, *given, **kwargs)
            for spot, act in here:
                if spot.moment == "result":
                    new = act(result)
                    result = result if new is None else new
            return (result, *rest)

        return attention

    with ExitStack() as stack:
        if kernel == "eager":
            for name in {type(spot.module).__module__ for spot in acts}:
                file = sys.modules[name]
                own = getattr(file, "eager_attention_forward", None)
                if own is not None:
                    stack.callback(setattr, file, "eager_attention_forward", own)
                    file.eager_attention_forward = wrapped(own)
        else:
            table = ALL_ATTENTION_FUNCTIONS._global_mapping
            stack.callback(table.__setitem__, kernel, table[kernel])
            table[kernel] = wrapped(table[kernel])
        yield


class _Softmax(TorchFunctionMode):
    """Acts on the softmax over keys in the forward of modules, and on the first dropout behind it."""

    def __init__(self, acts: Mapping[Spot, Act], stack: ExitStack) -> None:
        super().__init__()
        self._acts = acts
        self._inside: list[nn.Module] = []
        self._awaits_dropout = False
        for module in {id(spot.module): spot.module for spot in acts}.values():
            stack.callback(module.register_forward_pre_hook(self._go_in).remove)
            stack.callback(module.register_forward_hook(self._come_out, always_call=True).remove)

    def _go_in(self, module: nn.Module, _args: Any) -> None:
        self._inside.append(module)
        self._awaits_dropout = False

    def _come_out(self, *_: Any) -> None:
        self._inside.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._inside:
            return func(*args, **kwargs)
        if func in _SOFTMAX:
            scores = self._at("softmax", args[0] if args else kwargs.pop("input"))
            self._awaits_dropout = True
            return self._at("softmax result", func(scores, *args[1:], **kwargs))
        if func is nn.functional.dropout and self._awaits_dropout:
            self._awaits_dropout = False
            return self._at("pattern", func(*args, **kwargs))
        return func(*args, **kwargs)

    def _at(self, moment: str, tensor: Tensor) -> Tensor:
        for spot, act in self._acts.items():
            if spot.moment == moment and spot.module is self._inside[-1]:
                new = act(tensor)
                tensor = tensor if new is None else new
        return tensor


def returned(hf: nn.Module, module: nn.Module, inputs: Mapping[str, Any]) -> list[Any]:
    """What a module returns in a pass, each time that it is called."""
    found: list[Any] = []
    hook = module.register_forward_hook(lambda _module, _args, output: found.append(output))
    try:
        with torch.no_grad():
            hf(**inputs)
    finally:
        hook.remove()
    return found


@contextmanager
def passed_over(module: nn.Module, *, pair: Any) -> Generator[None]:
    """Has a module return its first argument, in the kind of container, `pair`, that it returned before."""

    def instead(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else next(iter(kwargs.values()))
        return (given, *(None for _ in pair[1:])) if isinstance(pair, tuple) else given

    module.forward = instead
    try:
        yield
    finally:
        del module.forward
