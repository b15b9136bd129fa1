"""Hosts: a model, its layers, their attention and MLP, and any other module, as things whose values can be asked for.

A host is a light view: a subject and a place in it. `host.name` gives, in this order, a value of the vocabulary or of
every module (`input`, `inputs`, `output`), a module under its standard name, or whatever the module itself has under
that name (its parameters, its submodules, its attributes). `host.name = new` edits a value and does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

import torch
from torch import nn
from transformers import PretrainedConfig

from cutaway.errors import (
    ReadOnlyError,
    UnavailableValueError,
    UnknownLayerError,
    UnknownValueError,
)
from cutaway.model.declared import AttentionNames, LayerNames, MixerNames, MlpNames, ModelNames
from cutaway.model.modules import ModuleHost, ModulesHost, join
from cutaway.passes.asked import Asked
from cutaway.passes.derived import derive
from cutaway.subject.module_names import host_of
from cutaway.subject.names import refuse_derived
from cutaway.subject.subject import Subject
from cutaway.subject.unknown_names import unknown_on_host
from cutaway.subject.weights import weight_path
from cutaway.vocabulary import (
    HOSTS,
    MODULES,
    SUBLAYERS,
    VALUES,
    WEIGHTS,
    Host,
    Value,
    ValuePath,
    Weight,
    values_of,
    weights_of,
)
from cutaway.vocabulary.numbers import whole_number


class ValueHost(ModuleHost):
    """A host of the vocabulary: the model, a layer, its attention or its MLP."""

    _host: Host
    _layer: int | None
    _hosts: dict[str, ModuleHost]

    def __init__(self, subject: Subject, host: Host, layer: int | None = None) -> None:
        super().__init__(subject, subject.host_path(host, layer), HOSTS[host].format(layer=layer), host_at)
        object.__setattr__(self, "_host", host)
        object.__setattr__(self, "_layer", layer)
        object.__setattr__(self, "_hosts", {})

    def _ask(self, value: Value) -> Any:
        if value.derived:
            trace = self._trace(value.name)
            subject, path = self._subject, ValuePath(value.name, self._layer)
            reason = subject.why_missing(path)
            if reason:
                raise UnavailableValueError(f"`{path}` does not exist here. {reason}")
            return derive(subject, path, lambda: trace.call, lambda source: trace.ask(subject.address(source)))
        address = self._subject.address(ValuePath(value.name, self._layer))
        return self._trace(value.name).ask(address)

    def _weight(self, name: str) -> Any:
        return self._subject.weight(name, self._layer)

    def __setattr__(self, name: str, new: Any) -> None:
        if name in WEIGHTS and WEIGHTS[name].host == self._host:
            path = weight_path(WEIGHTS[name], self._layer)
            raise ReadOnlyError(
                f"`{path}` is a view of the model's own parameter, and no value of a pass, so it cannot be assigned. "
                "To change the model, write into the parameter under its own name, under `torch.no_grad()`."
            )
        value = VALUES.get(name)
        if value is None or value.host != self._host:
            super().__setattr__(name, new)
            return
        if value.derived:
            refuse_derived(ValuePath(name, self._layer))
        self._trace(name, "edit").edit(self._subject.address(ValuePath(name, self._layer)), new)

    def __repr__(self) -> str:
        owner = {"layer": "", "attention": "attention of ", "mixer": "mixer of ", "mlp": "MLP of ", "model": ""}[
            self._host
        ]
        values = [value.name for value in values_of(self._host) if self._subject.has_site(value.name)]
        return (
            f"<{owner}layer {self._layer} of {self._subject.name}: {type(self.module).__name__}, "
            f"values: {', '.join(values)}>"
        )

    def __dir__(self) -> list[str]:
        if not self._is_of_a_model:
            return super().__dir__()
        lacking = {value.name for value in values_of(self._host) if not self._subject.has_site(value.name)}
        lacking |= {row.name for row in weights_of(self._host) if not self._subject.weights.has(row, self._layer)}
        return sorted({*super().__dir__(), *self._subject.family_at(self._layer).modules.get(self._host, {})} - lacking)

    def _attribute(self, name: str) -> Any:
        if name in self._hosts:
            return self._hosts[name]
        subhost = _SUBHOSTS.get((self._host, name))
        if subhost is not None and self._subject.host_path(subhost, self._layer) in self._subject.modules:
            return self._hosts.setdefault(name, _IN_A_LAYER[subhost](self._subject, self._layer))
        if (self._host, name) == ("model", "layers"):
            return self._hosts.setdefault(name, LayersHost(self._subject))
        if name in VALUES and VALUES[name].host == self._host:
            return self._ask(VALUES[name])  # one that was registered after this package was imported
        own = self._subject.family_at(self._layer).modules.get(self._host, {}).get(name)
        if own is not None:
            place = self._subject.module_path(self._host, self._layer, name)
            if place not in self._subject.modules:
                raise UnavailableValueError(self._subject.places.why_no_module(self._host, self._layer, name))
            return host_at(self._subject, place, join(self._path, name))
        return super()._attribute(name)

    def _unknown(self, name: str) -> Exception:
        if name == "lm_head" and self._host == "model" and not self._subject.has_site("logits"):
            return UnavailableValueError(f"`lm_head` does not exist here. {self._subject.why_unavailable('logits')}")
        if name in MODULES and MODULES[name].host == self._host:
            there = [child for child, _ in self.module.named_children()]
            instead = f" Ask for `{_INSTEAD[name]}`." if name in _INSTEAD else ""
            return UnknownValueError(
                f"`{self._path or 'the model'}` has no module `{name}`: {self._subject.family.name} has no module of "
                f"its own for {MODULES[name].meaning.partition(',')[0]}.{instead} It has: {', '.join(there)}."
            )
        return unknown_on_host(self._subject, self._host, self._layer, name)


class ModelHost(ValueHost, ModelNames):
    """The model."""

    layers: LayersHost

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject, "model")

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer, or None."""
        return self._subject.tokenizer

    @property
    def config(self) -> PretrainedConfig:
        """The transformers config, under its own names; the standard sizes are `model.num_layers` and so on."""
        return self._subject.hf.config

    @property
    def device(self) -> torch.device:
        """Where the model's first parameter is: `meta` while its weights have not been loaded."""
        return self._subject.hf.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the model's parameters."""
        return self._subject.hf.dtype

    @property
    def sizes(self) -> dict[str, int]:
        """The model's sizes under their standard names: `num_layers`, `hidden_size`, `num_heads`, …"""
        return dict(self._subject.sizes)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._subject.sizes})

    def _attribute(self, name: str) -> Any:
        return self._subject.sizes[name] if name in self._subject.sizes else super()._attribute(name)


class LayerHost(ValueHost, LayerNames):
    """A block of the model."""

    self_attn: AttentionHost
    mixer: MixerHost
    mlp: MlpHost

    def __init__(self, subject: Subject, layer: int | None) -> None:
        super().__init__(subject, "layer", layer)


class AttentionHost(ValueHost, AttentionNames):
    """The attention of a block."""

    def __init__(self, subject: Subject, layer: int | None) -> None:
        super().__init__(subject, "attention", layer)


class MixerHost(ValueHost, MixerNames):
    """The token mixer of a block that is no attention."""

    def __init__(self, subject: Subject, layer: int | None) -> None:
        super().__init__(subject, "mixer", layer)


class MlpHost(ValueHost, MlpNames):
    """The feed-forward network of a block."""

    def __init__(self, subject: Subject, layer: int | None) -> None:
        super().__init__(subject, "mlp", layer)


_SUBHOSTS: dict[tuple[Host, str], Host] = {("layer", name): host for host, name in SUBLAYERS.items()}
"""The standard modules that are hosts of values themselves."""

_INSTEAD = {
    "q_proj": "attention_queries",
    "k_proj": "attention_keys",
    "v_proj": "attention_values",
    "post_attention_layernorm": "mlp_norm_output",
}
"""The value to ask for where a module is not there, which is there all the same."""

_IN_A_LAYER = {"layer": LayerHost, "attention": AttentionHost, "mixer": MixerHost, "mlp": MlpHost}


def _property(value: Value) -> property:
    axes = f"{value.layout.name} {value.layout}" if value.layout.axes else value.layout.name
    aside = "; read-only" if value.read_only else ""

    def get(host: ValueHost) -> Any:
        return host._ask(value)

    def put(host: ValueHost, new: Any) -> None:
        setattr(host, value.name, new)  # `__setattr__` edits it, and comes first

    get.__doc__ = f"{axes}: {value.meaning}{aside}."
    return Asked(get, None if value.read_only else put)


# As properties, values are documented where Python looks for it, and completing a name in a prompt asks for none.
for _value in VALUES.values():
    setattr(_IN_A_LAYER.get(_value.host, ModelHost), _value.name, _property(_value))


def _weight_property(row: Weight) -> property:
    def get(host: ValueHost) -> Any:
        return host._weight(row.name)

    get.__doc__ = f"{row.layout}: {row.meaning}. A view of the model's parameter, not to be written into."
    return Asked(get)


for _row in WEIGHTS.values():
    setattr(_IN_A_LAYER.get(_row.host, ModelHost), _row.name, _weight_property(_row))


class LayersHost(ModulesHost):
    """The blocks: `model.layers[3]`, `model.layers[-1]`, `model.layers[2:5]`, `for layer in model.layers`."""

    _layers: dict[int, LayerHost]

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject, subject.module_path("model", None, "layers"), "layers", host_at)
        object.__setattr__(self, "_layers", {})

    @overload
    def __getitem__(self, index: int) -> LayerHost: ...
    @overload
    def __getitem__(self, index: slice) -> list[LayerHost]: ...
    def __getitem__(self, index: int | slice) -> LayerHost | list[LayerHost]:
        layers = range(self._subject.sizes["num_layers"])
        if isinstance(index, slice):
            return [self[layer] for layer in layers[index]]
        number = whole_number(index, "a layer")
        try:
            layer = layers[number]
        except IndexError:
            raise UnknownLayerError(
                f"there is no layer {number}: {self._subject.name} has {len(layers)}, 0 to {len(layers) - 1}."
            ) from None
        if layer not in self._layers:
            self._layers[layer] = LayerHost(self._subject, layer)
        return self._layers[layer]

    def _unknown(self, name: str) -> Exception:
        row = VALUES.get(name) or WEIGHTS.get(name) or MODULES.get(name)
        if row is None or row.host == "model":
            return super()._unknown(name)
        where = HOSTS[row.host].format(layer="i").replace(".i", "[i]")
        several = f", and of all `model.read(prompt, '{HOSTS[row.host].format(layer='*')}.{name}')`"
        return UnknownValueError(
            f"`layers` is several, and has nothing called `{name}` itself. Of one layer it is `model.{where}.{name}`"
            f"{several if name in VALUES else ''}."
        )

    def __len__(self) -> int:
        return self._subject.sizes["num_layers"]

    def __iter__(self) -> Iterator[LayerHost]:
        return (self[layer] for layer in range(len(self)))

    def __repr__(self) -> str:
        kinds = sorted({type(layer.module).__name__ for layer in self})
        return f"<{len(self)} layers of {self._subject.name}: {', '.join(kinds)}>"


# IPython's completer, where it does without Jedi, asks nothing of a class that has a `__getattr__`. It goes by what the
# class declares, if that is told in classes and not in words; and of what has an index it knows lists alone.
ModelHost.__annotations__["layers"] = list[LayerHost]
LayerHost.__annotations__.update(self_attn=AttentionHost, mixer=MixerHost, mlp=MlpHost)


def host_at(subject: Subject, module_path: str, path: str) -> ModuleHost:
    """The host of a module, by the module's own path."""
    host, layer, rest = host_of(subject, module_path)
    if not rest and host != "model":
        return _IN_A_LAYER[host](subject, layer)
    several = isinstance(subject.modules[module_path], (nn.ModuleList, nn.Sequential))
    return (ModulesHost if several else ModuleHost)(subject, module_path, path, host_at)
