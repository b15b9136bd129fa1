"""Where a model's hosts and modules stand, in the model as it is.

A family file says where they stand in a model as transformers builds it. This one may have been changed: a block
wrapped in a module that calls it, an MLP exchanged for a linear map, layers cut off or appended. A module that is not
where the family says is looked for inside what wraps it; one that is nowhere has a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from torch import nn

from cutaway.families import Family, Kind
from cutaway.sites import INSIDE, OF_SOFTMAX, STREAMS, Moment, OperationMoment, Site
from cutaway.tracing.interior import uses_interface
from cutaway.tracing.occurrences import paths_of
from cutaway.vocabulary import HOSTS, SUBLAYERS, VALUES, Host

_DEEPEST = 4
"""How many wrappers around one another are looked through."""


class Places:
    """Paths of hosts, modules and values.

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
        self._family = family
        self._config: Any = getattr(model, "config", None)
        self._layers = self._step("", family.modules["model"]["layers"])
        self._keys = self._keys_of_layers()
        self.num_layers = len(self._keys)
        self._families = self._families_of_layers()
        self._hosts: dict[tuple[Host, int | None], str] = {}
        self._modules: dict[tuple[Host, int | None, str], str] = {}

    def _keys_of_layers(self) -> list[str]:
        container = self.modules.get(self._layers)
        return [] if container is None else [name for name, child in container._modules.items() if child is not None]

    def _families_of_layers(self) -> list[Family]:
        """The family as it is on each layer; one object for the layers of one kind."""
        known: dict[tuple[str, ...], Family] = {}
        found: list[Family] = []
        for layer in range(self.num_layers):
            kinds = [kind for kind in self._family.kinds if self._is_of(layer, kind)]
            names = tuple(kind.name for kind in kinds)
            found.append(known.setdefault(names, self._family.with_kinds(kinds)))
        return found

    def _is_of(self, layer: int, kind: Kind) -> bool:
        if kind.layers:
            return layer in kind.layers
        if kind.setting:
            entries = getattr(self._config.get_text_config(), kind.setting)
            return layer < len(entries) and entries[layer] == kind.is_
        return self._step(f"{self._layers}.{self._keys[layer]}", kind.has) in self.modules

    def family(self, layer: int | None) -> Family:
        """The family as it is on a layer, or for None around the layers."""
        return self._family if layer is None or layer >= self.num_layers else self._families[layer]

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
        if host == "layer":
            return layer_path
        own = self.family(layer).modules["layer"].get(SUBLAYERS[host], SUBLAYERS[host])
        return self._step(layer_path, own) if own else layer_path  # a sublayer may be spread out in its layer

    def module(self, host: Host, layer: int | None, name: str) -> str:
        """A module's own path, from its standard or its own name on a host; the family's where there is none."""
        found = self._modules.get((host, layer, name))
        if found is None:
            own = self.family(layer).modules.get(host, {}).get(name, name)
            found = self._step(self.host(host, layer), own) if own else self.host(host, layer)
            self._modules[host, layer, name] = found
        return found

    def of_site(self, host: Host, layer: int | None, site: Site) -> str:
        """The own path of the module at which a value of a host has its site."""
        host = site.of or host
        own = self.module(host, layer, site.module) if site.module else self.host(host, layer)
        return self.interior(own) if site.moment in INSIDE else own

    @cached_property
    def _moments(self) -> dict[str, dict[Moment | OperationMoment, None]]:
        found: dict[str, dict[Moment | OperationMoment, None]] = {}
        for layer in (None, *range(self.num_layers)):
            for name, site in self.family(layer).values.items():
                host = VALUES[name].host
                if (host == "model") == (layer is None):
                    found.setdefault(self.of_site(host, layer, site), {})[site.moment] = None
        return found

    def moments(self, path: str) -> Sequence[Moment | OperationMoment]:
        """The moments of a module at which a pass is to be followed: where it enters and leaves, and where values are
        in between, in the order in which one module comes by them."""
        here = self._moments.get(path, {})
        entered: list[Moment | OperationMoment] = [*(moment for moment in STREAMS if moment in here), "enter"]
        for moment in here:
            if moment not in (*STREAMS, "enter", "exit") and not (moment in INSIDE and self._lacks(path, moment)):
                entered.append(moment)
        return [*entered, "exit"]

    def _lacks(self, path: str, moment: Moment | OperationMoment) -> bool:
        """Whether the module at a path cannot be looked into at a moment inside an attention."""
        return path not in self.modules or (moment not in OF_SOFTMAX and self.lacks_interior(path))

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
        return module is None or not uses_interface(type(module))

    def why_missing(self, host: Host, layer: int | None, site: Site) -> str:
        """Why a value of a host has no place, whose site this is; empty where it has."""
        host = site.of or host
        where = HOSTS[host].format(layer=layer) or "the model"
        own = self.host(host, layer)
        if own not in self.modules:
            return f"This model has no module `{own}`."
        path = self.module(host, layer, site.module) if site.module else own
        if path not in self.modules:
            return self.why_no_module(host, layer, site.module)
        if site.moment in INSIDE and self._lacks(self.interior(path), site.moment):
            given = type(self.modules[path]).__name__
            return f"`{where}` is a {given} here, which does not call attention through transformers' interface."
        return ""

    def why_no_module(self, host: Host, layer: int | None, name: str) -> str:
        """What stands where a host has no module of this standard name, though the family has."""
        where = HOSTS[host].format(layer=layer) or "the model"
        given = type(self.modules[self.host(host, layer)]).__name__
        own = self.family(layer).modules[host].get(name, name)
        return f"`{where}` is a {given} here, which has no module `{own}`."

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
