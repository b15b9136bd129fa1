"""One pass of a model, or of its twin: who was called with what, and what was made of what.

Tensors are followed by what they come of: a `Node` is what a tensor holds at one instant, so that a sum that is made in
place is told from what was there before. Dropouts, views and changes of dtype leave a node the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from cutaway.sites import INSIDE, OF_SOFTMAX, Moment
from cutaway.tracing import Attachment, attach, remove_all
from cutaway.tracing.interior import uses_interface
from cutaway.tracing.torch_state import no_settings
from cutaway.tracing.trial import BATCH, SEQ, Trial, first_that_runs

_ADD = {"add", "__add__", "__radd__", "__iadd__", "add_"}
_MULTIPLY = {"mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply"}
_SAME = {"contiguous", "dropout", "reshape", "to", "type", "type_as", "view", "float", "clone", "flatten", "unflatten"}
"""Functions whose result, where it has as many numbers and the same last axis, is what they were given still."""

_VIEWS = _SAME | {"permute", "swapaxes", "transpose"}
"""Functions whose result is otherwise the same numbers in another shape."""

_IN_PLACE = {"__iadd__", "add_", "__imul__", "mul_"}


@dataclass(eq=False)
class Node:
    """What a tensor held at one instant, whatever its shape.

    Attributes:
        terms: what it is the sum of; empty where it is none.
        factors: what it is the product of, entry by entry.
        scaled: what it is a multiple of, and by what: a number, or the path of a parameter or buffer.
        viewed: what it is a view of, in another shape.
        cut_from: what it is a part of.
        squashed: what it is the sigmoid of.
        integer: whether it held whole numbers.
    """

    terms: tuple[Node, ...] = ()
    factors: tuple[Node, ...] = ()
    scaled: tuple[Node, float | str] | None = None
    viewed: Node | None = None
    cut_from: Node | None = None
    squashed: Node | None = None
    integer: bool = False

    def comes_of(self, other: Node | None) -> bool:
        """Whether it is another's numbers, in whatever shape and times a constant."""
        node: Node | None = self
        while node is not None and node is not other:
            node = node.viewed or (node.scaled[0] if node.scaled is not None else None)
        return node is not None

    def gates_by(self, other: Node | None) -> bool:
        """Whether it is the sigmoid of a part of another's numbers."""
        node, squashed = self, False
        while node is not other:
            squashed = squashed or node.squashed is not None
            before = node.viewed or node.cut_from or node.squashed
            if before is None:
                return False
            node = before
        return squashed


@dataclass(frozen=True)
class Called:
    """One call of a module: its argument's name, the first tensors that entered and left, and all that left, each with
    its shape."""

    path: str
    module: nn.Module
    argument: str
    given: Node | None
    returned: Node | None
    all_returned: tuple[Node | None, ...]
    given_shape: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what it returned first; empty where that is no tensor."""
        return self.shapes[0] if self.shapes else ()

    @property
    def by_rows(self) -> bool:
        """Whether it returned a row for each token."""
        return len(self.shape) == 2 and self.shape[0] == BATCH * SEQ

    @property
    def takes_rows(self) -> bool:
        """Whether it was given a row for each token."""
        return len(self.given_shape) == 2 and self.given_shape[0] == BATCH * SEQ


@dataclass
class Attended:
    """What passed inside the attention of one module: the shapes at each moment, and what the tensors held."""

    shapes: dict[str, torch.Size] = field(default_factory=dict[str, torch.Size])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])


@dataclass
class Recording:
    """What a pass came by. Calls are in the order in which they ended.

    Attributes:
        model: what ran: the twin, or the model itself.
        trial: how it was called.
        calls: all calls of modules.
        attended: by path, what was seen inside of modules that attend.
        result: what the model returned.
    """

    model: PreTrainedModel
    trial: Trial
    calls: list[Called] = field(default_factory=list[Called])
    attended: dict[str, Attended] = field(default_factory=dict[str, Attended])
    result: Any = None
    _nodes: dict[int, Node] = field(default_factory=dict[int, Node])
    _kept: list[Any] = field(default_factory=list[Any])
    _named: dict[int, str] = field(default_factory=dict[int, str])

    def node(self, tensor: Tensor) -> Node:
        """What a tensor holds now."""
        found = self._nodes.get(id(tensor))
        if found is None:
            found = Node(integer=not tensor.is_floating_point())
            self.hold(tensor, found)
        return found

    def hold(self, tensor: Tensor, node: Node) -> None:
        """Notes what a tensor holds from now on."""
        self._nodes[id(tensor)] = node
        self._kept.append(tensor)  # so that no other has its number

    def name(self, tensor: Tensor) -> str:
        """The path of a parameter or buffer of the model; empty for another tensor."""
        return self._named.get(id(tensor), "")

    def calls_of(self, path: str) -> list[Called]:
        """The calls of the module at a path."""
        return [call for call in self.calls if call.path == path]

    def call_of(self, path: str) -> Called | None:
        """The last call of the module at a path."""
        return next((call for call in reversed(self.calls) if call.path == path), None)

    def inside(self, path: str) -> list[Called]:
        """The calls of what stands below a path."""
        return [call for call in self.calls if call.path.startswith(f"{path}.")]


@no_settings()
def record(hf: PreTrainedModel, has_weights: bool, device: Any) -> Recording:
    """Runs one pass and notes what it comes by.

    Raises:
        Exception: what the first trial raised, where no pass can be run.
    """

    def look(model: PreTrainedModel, run: Callable[[], Any], trial: Trial) -> Recording:
        recording = Recording(model, trial)
        _follow(recording, run)
        return recording

    return first_that_runs(hf, has_weights, device, look)


def _follow(recording: Recording, run: Callable[[], Any]) -> None:
    model = recording.model
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        recording._named[id(tensor)] = name
    noted: list[Attachment] = []
    try:
        for path, module in model.named_modules():
            for moment in _moments(module):
                attach(module, moment, partial(_note_inside, recording, path, moment), _always, noted)
        with _hooked(recording), _Watch(recording):
            recording.result = run()
    finally:
        remove_all(noted)


def _moments(module: nn.Module) -> tuple[Moment, ...]:
    """Where a module is looked into: an attention at every moment, one that calls no interface at its softmax."""
    if uses_interface(type(module)):
        return INSIDE
    name = type(module).__name__.lower()
    attends = "attention" in name or "attn" in name
    return OF_SOFTMAX if attends and not name.endswith(("output", "norm")) else ()


def _note_inside(recording: Recording, path: str, moment: Moment, passing: Any) -> None:
    seen = recording.attended.setdefault(path, Attended())
    named = passing if moment == "arguments" else {moment: passing}
    for name, tensor in named.items():
        if isinstance(tensor, Tensor):
            seen.shapes.setdefault(name, tensor.shape)
            seen.nodes.setdefault(name, recording.node(tensor))


@contextmanager
def _hooked(recording: Recording) -> Generator[None]:
    """Has every call of a module noted."""
    entered: dict[int, list[tuple[str, Node | None, tuple[int, ...]]]] = {}

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = list(inspect.signature(module.forward).parameters)
        passed = {**dict(zip(names, args, strict=False)), **kwargs}
        argument = next((name for name, value in passed.items() if isinstance(value, Tensor)), "")
        tensor = passed[argument] if argument else None
        given = None if tensor is None else recording.node(tensor)
        entered.setdefault(id(module), []).append((argument, given, () if tensor is None else tuple(tensor.shape)))

    def leave(path: str, module: nn.Module, _args: Any, output: Any) -> None:
        argument, given, given_shape = entered[id(module)].pop()
        items = _items(output)
        returned = tuple(recording.node(item) if isinstance(item, Tensor) else None for item in items)
        shapes = tuple(tuple(item.shape) if isinstance(item, Tensor) else () for item in items)
        first = returned[0] if returned else None
        recording.calls.append(Called(path, module, argument, given, first, returned, given_shape, shapes))

    handles: list[Any] = []
    try:
        for path, module in recording.model.named_modules():
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(partial(leave, path)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _items(output: Any) -> tuple[Any, ...]:
    if isinstance(output, (tuple, list)):
        return tuple(output)  # pyright: ignore[reportUnknownArgumentType]
    return tuple(output.values()) if isinstance(output, dict) else (output,)  # pyright: ignore


class _Watch(TorchFunctionMode):
    """Follows tensors: sums, products, multiples, and what is the same under another shape."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recording, name = self._recording, getattr(func, "__name__", "")
        tensors = [arg for arg in args[:2] if isinstance(arg, Tensor)]
        before = [recording.node(tensor) for tensor in tensors] if name in _FOLLOWED else []
        result = func(*args, **(kwargs or {}))
        if name in _CUT and before and isinstance(result, (tuple, list)):
            for part in result:  # pyright: ignore[reportUnknownVariableType]
                recording.hold(part, Node(cut_from=before[0]))  # pyright: ignore[reportUnknownArgumentType]
        elif before and isinstance(result, Tensor) and not (kwargs or {}).get("alpha"):
            made = self._made(name, args, tensors, before, result)
            if made is not None:
                recording.hold(result, made)
        return result

    def _made(self, name: str, args: Any, tensors: list[Tensor], before: list[Node], result: Tensor) -> Node | None:
        if name == "sigmoid":
            return Node(squashed=before[0])
        if name in _ADD and len(before) == 2 and tensors[0].shape == tensors[1].shape:
            return Node(terms=(before[0], before[1]))
        if name in _MULTIPLY and len(before) == 2:
            return self._product(tensors, before, result)
        number = args[1] if len(args) > 1 and args[0] is tensors[0] else args[0]
        if name in _MULTIPLY and isinstance(number, (int, float)):
            return Node(scaled=(before[0], float(number)))
        if name in _VIEWS and args[0] is tensors[0]:
            if result.numel() != tensors[0].numel():
                return None
            same = name in _SAME and result.shape[-1:] == tensors[0].shape[-1:]
            return before[0] if same else Node(viewed=before[0])
        return Node() if name in _IN_PLACE else None

    def _product(self, tensors: list[Tensor], before: list[Node], result: Tensor) -> Node:
        for one, other in ((0, 1), (1, 0)):
            learned = self._recording.name(tensors[other])
            if learned and tensors[other].numel() in (1, result.shape[-1]) and tensors[one].shape == result.shape:
                return Node(scaled=(before[one], learned))
        same = tensors[0].shape == tensors[1].shape
        return Node(factors=(before[0], before[1]) if same else ())


_CUT = {"chunk", "split"}
_FOLLOWED = _ADD | _MULTIPLY | _VIEWS | _CUT | {"sigmoid"}


def _always() -> bool:
    return True
