"""What a printout shows, as data: the native modules, their standard names, and the values under their hosts.

Modules in a list whose structure is equal are folded into one node. Structure is everything that tells two modules
apart but their weights: classes, arguments, plain settings, shapes of parameters, and which values a pass comes by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from cutaway.inspection.kinds import load_told
from cutaway.inspection.numbers import ranges
from cutaway.subject.subject import Subject
from cutaway.vocabulary import SUBLAYERS, Host, Value, ValuePath, values_of, weights_of


@dataclass(frozen=True)
class ValueLine:
    """A value under its host; `missing` says briefly why it does not exist here, and is empty where it does."""

    name: str
    layout: str
    meaning: str
    missing: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class ModuleNode:
    """A module, or several of equal structure.

    Attributes:
        key: its own name in what holds it, or for folded ones their numbers; empty for the model itself.
        standard: its standard name, where it has one that is another.
        count: how many are folded here.
        class_name: its class.
        arguments: what the class says of itself, shortened.
        differs: for one of several kinds in a list, in what it differs from the first kind.
        weights: the standard names of the weights that a host has.
    """

    key: str
    standard: str
    count: int
    class_name: str
    arguments: str
    differs: str = ""
    values: tuple[ValueLine, ...] = ()
    weights: tuple[str, ...] = ()
    children: tuple[ModuleNode, ...] = ()

    @property
    def label(self) -> str:
        """Its name in brackets, `(o_proj/dense)` say; empty for the model itself."""
        return f"({self.standard}/{self.key})" if self.standard else f"({self.key})" if self.key else ""

    @property
    def what(self) -> str:
        """Number, class and arguments: `32 x PhiDecoderLayer`."""
        many = f"{self.count} x " if self.count > 1 else ""
        return f"{many}{self.class_name}" + (f"({self.arguments})" if self.arguments else "")


@dataclass(frozen=True)
class Tree:
    """A whole printout: the name, how the model is loaded, its sizes, and its modules."""

    name: str
    load: str
    sizes: Mapping[str, int]
    root: ModuleNode


def tree_of(subject: Subject) -> Tree:
    """Everything that a printout of this model shows."""
    return _Reader(subject).read()


def part_of(subject: Subject, module_path: str) -> Tree:
    """The same of one module, by its own path."""
    return _Reader(subject).read(module_path)


def module_line(module: nn.Module) -> str:
    """A module in one line: its class, what this says of itself, and how its weight lies where that is not usual."""
    arguments = _arguments(module)
    return type(module).__name__ + (f"({arguments})" if arguments else "")


def find_block(tree: Tree) -> Tree:
    """The same tree, from its layers on."""
    layers = next((node for node in _walk(tree.root) if "layers" in (node.key, node.standard)), tree.root)
    return Tree(tree.name, tree.load, tree.sizes, layers)


def _walk(node: ModuleNode) -> Iterator[ModuleNode]:
    yield node
    for child in node.children:
        yield from _walk(child)


def count_parameters(model: nn.Module) -> str:
    """The number of parameters, each counted once, in three figures: `2.78B`."""
    count = float(sum(parameter.numel() for parameter in model.parameters()))
    for unit in ("", "K", "M", "B"):
        if count < 999.5 or unit == "B":
            return f"{count:.3g}{unit}" if count < 999.5 else f"{count:.0f}{unit}"
        count /= 1000
    raise AssertionError


def brief(reason: str) -> str:
    """The first clause of a reason, up to its first colon, semicolon or full stop."""
    return re.split(r"[:;]\s|\.(?:\s|$)", reason, maxsplit=1)[0]


@dataclass
class _Reader:
    subject: Subject
    hosts: dict[str, list[tuple[Host, int | None]]] = field(default_factory=dict[str, list[tuple[Host, int | None]]])
    standard: dict[str, str] = field(default_factory=dict[str, str])

    def read(self, path: str = "") -> Tree:
        subject = self.subject
        for layer in (None, *range(subject.sizes["num_layers"])):
            for host in ("model",) if layer is None else ("layer", *SUBLAYERS):
                self.hosts.setdefault(subject.host_path(host, layer), []).append((host, layer))
                for name in subject.family_at(layer).modules.get(host, {}):
                    self.standard[subject.module_path(host, layer, name)] = name
        load = load_told(subject, f"{count_parameters(subject.hf)} parameters")
        return Tree(subject.name, load, subject.sizes, self._node(path, subject.modules[path]))

    def _node(self, path: str, module: nn.Module, key: str = "", count: int = 1, differs: str = "") -> ModuleNode:
        own = path.rpartition(".")[2]
        standard = self.standard.get(path, "")
        return ModuleNode(
            key=key or own,
            standard=standard if standard != own else "",
            count=count,
            class_name=type(module).__name__,
            arguments=_arguments(module),
            differs=differs,
            values=tuple(self._values(path)),
            weights=tuple(self._weights(path)),
            children=tuple(self._children(path, module)),
        )

    def _children(self, path: str, module: nn.Module) -> Iterator[ModuleNode]:
        children = [
            (name, f"{path}.{name}" if path else name, child)
            for name, child in module._modules.items()  # `named_children` leaves out one that stands here twice
            if child is not None
        ]
        if not isinstance(module, nn.ModuleList):
            for _, child_path, child in children:
                yield self._node(child_path, child)
            return
        kinds: list[tuple[dict[str, Any], list[int]]] = []
        for i, (_, child_path, child) in enumerate(children):
            structure = self._structure(child_path, child)
            same = next((members for known, members in kinds if known == structure), None)
            if same is None:
                kinds.append((structure, [i]))
            else:
                same.append(i)
        for structure, members in kinds:
            _, child_path, child = children[members[0]]
            differs = _difference(kinds[0][0], structure) if structure is not kinds[0][0] else ""
            yield self._node(child_path, child, ranges(members), len(members), differs)

    def _structure(self, path: str, module: nn.Module) -> dict[str, Any]:
        """What tells a module apart from another, by the place inside it."""
        facts: dict[str, Any] = {}
        for inner, part in module.named_modules(remove_duplicate=False):
            own = ".".join(filter(None, (path, inner)))
            facts[inner] = type(part).__name__
            facts[f"{inner}()"] = part.extra_repr()
            for name, setting in vars(part).items():
                if isinstance(setting, (int, float, str, type(None))) and name not in _NO_STRUCTURE and name[0] != "_":
                    facts[f"{inner}.{name}".lstrip(".")] = setting
            for name, parameter in part.named_parameters(recurse=False):
                facts[f"{inner}.{name}".lstrip(".")] = (tuple(parameter.shape), parameter.dtype)
            for line in self._values(own):
                facts[f"{inner}.{line.name}".lstrip(".")] = "missing" if line.missing else "there"
        return facts

    def _values(self, path: str) -> Iterator[ValueLine]:
        for host, layer in self.hosts.get(path, ()):
            yield from self._values_of(host, layer)

    def _values_of(self, host: Host, layer: int | None) -> Iterator[ValueLine]:
        for value in values_of(host):
            if value.rare and not self.subject.has_site(value.name):
                continue
            layout = str(value.layout) if value.layout.axes else value.layout.name.lower()
            yield ValueLine(value.name, layout, value.meaning, self._missing(value, layer), value.read_only)

    def _weights(self, path: str) -> Iterator[str]:
        for host, layer in self.hosts.get(path, ()):
            yield from (row.name for row in weights_of(host) if self.subject.weights.has(row, layer))

    def _missing(self, value: Value, layer: int | None) -> str:
        return brief(self.subject.why_missing(ValuePath(value.name, layer)))


_NO_STRUCTURE = {"training", "layer_idx", "layer_id", "layer_number", "layer_index"}
"""Settings of a module that say which one it is, or in what mode, and not what it is like."""


def _arguments(module: nn.Module) -> str:
    """What a module says of itself, without what its position or a default says already."""
    own = module.extra_repr()
    own = re.sub(r"\b(in_features|out_features)=", "", own)
    own = re.sub(r"(^|, )(inplace=False|elementwise_affine=True(, bias=True)?)", "", own)
    if type(module).__name__ == "Conv1D":  # a linear layer's weight lies the other way, [out in]
        own = f"{', '.join(map(str, module.get_parameter('weight').shape))}, weight [in out]"
    return " ".join(own.split())


def _difference(first: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first places in which a structure is another than that of the first kind."""
    places = [place for place in dict.fromkeys((*first, *other)) if first.get(place) != other.get(place)]
    told = [f"{place or 'class'} {_say(other.get(place))}" for place in places[:2]]
    return ", ".join(told) + (f" and {len(places) - 2} more" if len(places) > 2 else "")


def _say(fact: Any) -> str:
    if isinstance(fact, tuple):
        shape, dtype = fact
        return f"{list(shape)} {str(dtype).removeprefix('torch.')}"
    return "none" if fact is None else str(fact)
