"""Hosts: a model, its layers, their attention and MLP, and any other module, as things whose values can be asked for.

A host is a light view: a subject and a place in it. `host.name` gives, in this order, a value of the vocabulary or of
every module (`input`, `inputs`, `output`), a module under its standard name, or whatever the module itself has under
that name (its parameters, its submodules, its attributes). `host.name = new` edits a value and does nothing else.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, overload

from torch import nn

from cutaway.errors import UnknownValueError
from cutaway.passes.derived import derive
from cutaway.passes.source import Act, SourceHost, trace_for
from cutaway.passes.trace import Trace
from cutaway.subject.address import Address
from cutaway.subject.names import refuse_derived
from cutaway.subject.subject import NATIVE_NAMES, Subject
from cutaway.vocabulary import HOSTS, MODULES, VALUES, Host, ValuePath

_SUBHOSTS: dict[tuple[Host, str], Host] = {("layer", "self_attn"): "attention", ("layer", "mlp"): "mlp"}
"""The standard modules that are hosts of values themselves."""


class ModuleHost:
    """Any module of a model, at its path."""

    _subject: Subject
    _module_path: str
    _path: str
    _hosts: dict[str, ModuleHost]

    def __init__(self, subject: Subject, module_path: str, path: str) -> None:
        object.__setattr__(self, "_subject", subject)
        object.__setattr__(self, "_module_path", module_path)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_hosts", {})

    @property
    def module(self) -> nn.Module:
        """The torch module itself."""
        return self._subject.modules[self._module_path]

    @property
    def source(self) -> SourceHost:
        """The calls inside the module's forward, each with `.input`, `.inputs` and `.output`; prints as the source."""
        return SourceHost(self._subject, self._module_path, _join(self._path, "source"), ())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in NATIVE_NAMES:
            return self._trace(name).ask(self._native(name))
        return self._attribute(name)

    def __setattr__(self, name: str, new: Any) -> None:
        if name in NATIVE_NAMES:
            self._trace(name, "edit").edit(self._native(name), new)
            return
        raise self._unknown(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module, outside any pass under way."""
        return self.module(*args, **kwargs)

    def skip(self, output: Any = None) -> None:
        """Passes over the module in the trace under way: it does not run, and `output` is its result.

        Args:
            output: a tensor of the shape of the module's result; by default the module's first argument. Where the
                module returns several things, it is the first, and the others are None.

        Raises:
            NoTraceError: outside a trace.
            LateEditError: the pass is already past the module's entrance.
            ShapeError, DtypeError, DeviceError: `output` is not like what the module would have returned.
        """
        self._trace("skip()", "skip").skip(self._native("input"), self._native("output"), output)

    def __getitem__(self, index: int) -> ModuleHost:
        child = str(range(len(self.module))[index])  # type: ignore[arg-type]
        return self._child(child)

    def __len__(self) -> int:
        return len(self.module)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path or self._subject.name}: {type(self.module).__name__}>"

    def __dir__(self) -> list[str]:
        children = [name for name, _ in self.module.named_children()]
        return sorted({*object.__dir__(self), *NATIVE_NAMES, *children, *dir(self.module)})

    def _native(self, name: str) -> Address:
        return self._subject.native_address(self._module_path, self._path, name)

    def _attribute(self, name: str) -> Any:
        found = getattr(self.module, name, _MISSING)
        if found is _MISSING:
            raise self._unknown(name)
        if isinstance(found, nn.Module) and name in self.module._modules:
            return self._child(name)
        return self._staying_here(found) if inspect.ismethod(found) else found

    def _staying_here(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the module; where it returns the module, as `to` and `eval` do, the host in its place."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            returned = method(*args, **kwargs)
            return self if returned is self.module else returned

        return call

    def _child(self, name: str) -> ModuleHost:
        return ModuleHost(self._subject, _join(self._module_path, name), _join(self._path, name))

    def _trace(self, name: str, act: Act = "ask for") -> Trace:
        return trace_for(self._subject, _join(self._path, name), act)

    def _unknown(self, name: str) -> Exception:
        near = [*NATIVE_NAMES, *(child for child, _ in self.module.named_children())]
        near += [parameter for parameter, _ in self.module.named_parameters(recurse=False)]
        return UnknownValueError(
            f"`{self._path or self._subject.name}` ({type(self.module).__name__}) has nothing called `{name}`. "
            f"It has: {', '.join(near)}."
        )


class ValueHost(ModuleHost):
    """A host of the vocabulary: the model, a layer, its attention or its MLP."""

    _host: Host
    _layer: int | None

    def __init__(self, subject: Subject, host: Host, layer: int | None = None) -> None:
        super().__init__(subject, subject.host_path(host, layer), HOSTS[host].format(layer=layer))
        object.__setattr__(self, "_host", host)
        object.__setattr__(self, "_layer", layer)

    def __getattr__(self, name: str) -> Any:
        value = VALUES.get(name)
        if value is not None and value.host == self._host:
            if value.derived:
                trace = self._trace(name)
                return derive(name, lambda: trace.call, lambda source: getattr(self, source))
            address = self._subject.address(ValuePath(name, self._layer))
            return self._trace(name).ask(address)
        return super().__getattr__(name)

    def __setattr__(self, name: str, new: Any) -> None:
        value = VALUES.get(name)
        if value is not None and value.host == self._host:
            if value.derived:
                refuse_derived(ValuePath(name, self._layer))
            self._trace(name, "edit").edit(self._subject.address(ValuePath(name, self._layer)), new)
            return
        super().__setattr__(name, new)

    def __dir__(self) -> list[str]:
        values = [value.name for value in VALUES.values() if value.host == self._host]
        return sorted({*super().__dir__(), *values, *self._subject.family.modules.get(self._host, {})})

    def _attribute(self, name: str) -> Any:
        if name in self._hosts:
            return self._hosts[name]
        subhost = _SUBHOSTS.get((self._host, name))
        if subhost is not None:
            return self._hosts.setdefault(name, ValueHost(self._subject, subhost, self._layer))
        if (self._host, name) == ("model", "layers"):
            return self._hosts.setdefault(name, LayersHost(self._subject))
        own = self._subject.family.modules.get(self._host, {}).get(name)
        if own is not None:
            return ModuleHost(self._subject, _join(self._module_path, own), _join(self._path, name))
        return super()._attribute(name)

    def _child(self, name: str) -> ModuleHost:
        return ModuleHost(self._subject, _join(self._module_path, name), _join(self._path, name))

    def _unknown(self, name: str) -> Exception:
        if name in MODULES and MODULES[name].host == self._host:
            return UnknownValueError(
                f"`{self._path or 'the model'}` has no module `{name}`: {self._subject.family.name} has no module of "
                f"its own for {MODULES[name].meaning}."
            )
        return self._subject.unknown(self._host, self._layer, name)


class LayersHost(ModuleHost):
    """The blocks: `model.layers[3]`, `model.layers[-1]`, `model.layers[2:5]`, `for layer in model.layers`."""

    _layers: dict[int, ValueHost]

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject, subject.module_path("model", None, "layers"), "layers")
        object.__setattr__(self, "_layers", {})

    @overload
    def __getitem__(self, index: int) -> ValueHost: ...
    @overload
    def __getitem__(self, index: slice) -> list[ValueHost]: ...
    def __getitem__(self, index: int | slice) -> ValueHost | list[ValueHost]:
        layers = range(self._subject.sizes["num_layers"])
        if isinstance(index, slice):
            return [self[layer] for layer in layers[index]]
        try:
            layer = layers[index]
        except IndexError:
            raise IndexError(f"there is no layer {index}: {self._subject.name} has {len(layers)}.") from None
        if layer not in self._layers:
            self._layers[layer] = ValueHost(self._subject, "layer", layer)
        return self._layers[layer]

    def __len__(self) -> int:
        return self._subject.sizes["num_layers"]

    def __iter__(self) -> Iterator[ValueHost]:
        return (self[layer] for layer in range(len(self)))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_MISSING = object()
