"""Where a model's hosts and modules stand, in the model as it is.

A family file says where they stand in a model as transformers builds it. This one may have been changed: a block
wrapped in a module that calls it, an MLP exchanged for a linear map, layers cut off or appended. A module that is not
where the family says is looked for inside what wraps it; one that is nowhere has a reason.
"""

from __future__ import annotations

from torch import nn

from cutaway.families import Family
from cutaway.sites import Moment, OperationMoment
from cutaway.tracing.interior import uses_interface
from cutaway.tracing.occurrences import paths_of
from cutaway.vocabulary import HOSTS, Host

INSIDE: tuple[Moment, ...] = ("arguments", "softmax", "pattern", "result")
"""The moments inside an attention's call, which are had through transformers' interface."""

_SUBLAYER: dict[Host, str] = {"attention": "self_attn", "mlp": "mlp"}

_DEEPEST = 4
"""How many wrappers around one another are looked through."""


class Places:
    """Paths of hosts and modules.

    Attributes:
        modules: every module by its path; one that stands in several places is there under each.
        paths: every path of a module, in the order of the model.
        shares: whether a module stands in several places.
        num_layers: how many layers there are, whatever the config says.
    """

    def __init__(self, model: nn.Module, family: Family) -> None:
        self.modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
        self.paths = paths_of(model)
        self.shares = any(len(paths) > 1 for paths in self.paths.values())
        self._names = family.modules
        self._layers = self._step("", self._names["model"]["layers"])
        self._keys = self._keys_of_layers()
        self.num_layers = len(self._keys)
        self._hosts: dict[tuple[Host, int | None], str] = {}

    def _keys_of_layers(self) -> list[str]:
        container = self.modules.get(self._layers)
        return [] if container is None else [name for name, child in container._modules.items() if child is not None]

    def host(self, host: Host, layer: int | None) -> str:
        """A host's own path, `model.layers.3.self_attn` say."""
        if (host, layer) not in self._hosts:
            self._hosts[host, layer] = self._host(host, layer)
        return self._hosts[host, layer]

    def _host(self, host: Host, layer: int | None) -> str:
        if host == "model":
            return ""
        assert layer is not None
        layer_path = f"{self._layers}.{self._keys[layer] if layer < self.num_layers else layer}"
        return layer_path if host == "layer" else self._step(layer_path, self._names["layer"][_SUBLAYER[host]])

    def module(self, host: Host, layer: int | None, name: str) -> str:
        """A module's own path, from its standard or its own name on a host; the family's where there is none."""
        own = self._names.get(host, {}).get(name, name)
        return self._step(self.host(host, layer), own)

    def interior(self, path: str) -> str:
        """Of an attention, the path of the module that calls the attention function: itself, or what it wraps."""
        inner = [path]
        for _ in range(_DEEPEST):
            calls = [one for one in inner if not self.lacks_interior(one)]
            if calls:
                return calls[0] if len(calls) == 1 else path
            inner = [_join(one, name) for one in inner for name in self._children(one)]
        return path

    def lacks_interior(self, path: str) -> bool:
        """Whether the module at a path does not call attention through transformers' interface, or is none."""
        module = self.modules.get(path)
        return module is None or not hasattr(module, "config") or not uses_interface(type(module))

    def why_missing(self, host: Host, layer: int | None, name: str, moment: Moment | OperationMoment) -> str:
        """Why a value has no place on a host, whose site is at a moment of the module `name`; empty where it has."""
        where = HOSTS[host].format(layer=layer) or "the model"
        own = self.host(host, layer)
        if own not in self.modules:
            return f"This model has no module `{own}`."
        path = self.module(host, layer, name) if name else own
        if path not in self.modules:
            given = type(self.modules[own]).__name__
            return f"`{where}` is a {given} here, which has no module `{self._names[host].get(name, name)}`."
        if moment in INSIDE and self.lacks_interior(self.interior(path)):
            given = type(self.modules[path]).__name__
            return f"`{where}` is a {given} here, which does not call attention through transformers' interface."
        return ""

    def _step(self, start: str, path: str) -> str:
        """Where `path` leads from `start`, through wrappers; as it is written, where it leads nowhere."""
        here = start
        for name in path.split("."):
            found = self._below(here, name, _DEEPEST)
            if len(found) != 1:
                return _join(start, path)
            here = found[0]
        return here

    def _below(self, path: str, name: str, depth: int) -> list[str]:
        """Where modules of this name stand right below a path, or below one wrapper or several around one another."""
        direct = _join(path, name)
        if direct in self.modules:
            return [direct]
        if depth == 0:
            return []
        return [found for child in self._children(path) for found in self._below(_join(path, child), name, depth - 1)]

    def _children(self, path: str) -> list[str]:
        module = self.modules.get(path)
        if module is None or isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            return []
        if type(module).__module__.startswith("transformers.models."):
            return []  # what such a class lacks, it does not wrap
        return [name for name, child in module._modules.items() if child is not None]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
