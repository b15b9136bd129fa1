"""The subject: the model under study, with all that is known about it.

Hosts are views of a subject and hold nothing else. Nothing here refers back to a host or a trace, so a model has no
reference cycle and its memory is freed as soon as the last name of it is gone.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cutaway.errors import NoWeightsError, UnavailableValueError, UnknownValueError
from cutaway.families import Family, derive, family_of_model
from cutaway.sites import MOMENTS, Moment, OperationMoment, Slot
from cutaway.sites.slots import FirstArgument, Whole
from cutaway.subject.address import Address
from cutaway.subject.contributions import why_no_parts
from cutaway.subject.inputs import Limits
from cutaway.subject.places import Places
from cutaway.subject.read_only import read_only
from cutaway.subject.survey import Survey, survey
from cutaway.subject.weights import Weights, weight_path
from cutaway.tracing import AsWritten
from cutaway.tracing.attach import Answers
from cutaway.tracing.batch import BatchNote
from cutaway.tracing.occurrences import Occurrences, paths_of, shared_paths
from cutaway.tracing.source import innermost, source_of
from cutaway.tracing.twin import is_sharded
from cutaway.vocabulary import (
    HOSTS,
    MODULES,
    SUBLAYERS,
    VALUES,
    WEIGHTS,
    Host,
    Value,
    ValuePath,
    all_paths,
)
from cutaway.vocabulary.elsewhere import near

NATIVE_NAMES: dict[str, tuple[Moment, Whole | FirstArgument]] = {
    "input": ("enter", FirstArgument()),
    "inputs": ("enter", Whole()),
    "output": ("exit", Whole()),
}
"""What every module has beside the vocabulary's values: its first argument, its arguments, and its output."""


class Subject:
    """A transformers model with its family, sizes, tokenizer, and the addresses of its values.

    `load_weights` is given for a model on the meta device, and brings its weights at the first pass.
    """

    def __init__(
        self,
        hf: PreTrainedModel,
        tokenizer: Any,
        name: str,
        load_weights: Callable[[], PreTrainedModel] | None = None,
        wrappers: tuple[nn.Module, ...] = (),
        family: Family | Literal["derived"] | None = None,
    ) -> None:
        self._load_weights = load_weights
        self._can_run = False
        self.hf = hf
        self.family = self._family_of(family)
        self.tokenizer = tokenizer
        self.name = name
        self.sizes = self.family.native_sizes(hf.config)
        self.sizes["num_layers"] = self.places.num_layers
        self._wrappers = wrappers
        self._addresses: dict[ValuePath | str, Address] = {}
        self._sizes_at: dict[int | None, dict[str, int]] = {}

    def _family_of(self, family: Family | Literal["derived"] | None) -> Family:
        """The family given, as it is under this config; or the one whose file covers the model; or what is derived.

        Raises:
            UnsupportedModelError: nothing can be derived, or the file does not hold under a setting.
        """
        if isinstance(family, Family):
            return family.of_config(self.hf.config)
        found = None if family == "derived" else family_of_model(self.hf)
        return found or derive(self.hf, self.has_weights, self.hf.device)

    def of_family(self, family: Family) -> Subject:
        """The same model with a family that claims less than this one's, so that what is known of its passes stays."""
        other = copy.copy(self)
        other.family, other._addresses, other._sizes_at = family, {}, {}
        for name in ("places", "value_paths", "_has_token_rows"):
            other.__dict__.pop(name, None)
        return other

    def twin(self) -> Subject:
        """The same model as another subject, so that what is done through the one is no concern of the other."""
        return copy.copy(self)

    @property
    def has_weights(self) -> bool:
        """Whether the model can run."""
        if self._can_run:
            return True
        # Weights that accelerate has offloaded look like missing ones.
        offloaded = next(self.hf.parameters()).is_meta and any(hasattr(m, "_hf_hook") for m in self.hf.modules())
        self._can_run = self._load_weights is None and (offloaded or not next(self.hf.parameters()).is_meta)
        return self._can_run

    def bring_weights(self) -> None:
        """Loads the weights of a model that was opened without them.

        Raises:
            NoWeightsError: there is nowhere to load them from.
        """
        if self.has_weights:
            return
        if self._load_weights is None:
            raise NoWeightsError(
                f"{self.name} is on the meta device and has no weights. Load it from a checkpoint: "
                "StandardizedTransformer('folder or hub id')."
            )
        self.hf = self._load_weights()
        self._load_weights = None
        self._addresses.clear()
        self._sizes_at.clear()
        self.__dict__.pop("places", None)

    def describe_load(self) -> str:
        """How the model is loaded, in words: class, dtype, attention implementation, device."""
        dtype = str(self.hf.dtype).removeprefix("torch.")
        device = "no weights loaded" if not self.has_weights else str(self.hf.device)
        told = f"{type(self.hf).__name__}, {dtype}, {self.hf.config._attn_implementation} attention, {device}"
        if not self.family.derived:
            return told
        return f"{told}, family derived {'and measured' if self.family.measured else 'from a pass, unmeasured'}"

    @property
    def over_devices(self) -> bool:
        """Whether the layers are on several devices, so that an edit cannot know on which its value is."""
        return len({str(device) for device in (getattr(self.hf, "hf_device_map", None) or {}).values()}) > 1

    @cached_property
    def limits(self) -> Limits:
        """What the ids of a call must keep within."""
        config = self.hf.config
        rope: Any = getattr(config, "rope_parameters", None)
        context = getattr(config, "max_position_embeddings", None)
        if isinstance(context, int) and context < 1:
            context = None  # as XLNet says that it has none
        if isinstance(rope, Mapping) and rope.get("rope_type") == "dynamic":  # pyright: ignore[reportUnknownMemberType]
            context = None  # it turns by the length of the prompt
        weight = getattr(self.modules[self.module_path("model", None, "embed_tokens")], "weight", None)
        if weight is None or not weight.is_floating_point():
            return Limits(self.sizes["vocab_size"], context, rope is None)
        return Limits(self.sizes["vocab_size"], context, rope is None, weight.shape[-1], weight.dtype)

    @property
    def input_device(self) -> torch.device:
        """Where the model takes its ids: the embedding's device, or the one that it runs on where it is offloaded."""
        embedding = self.modules[self.module_path("model", None, "embed_tokens")]
        weight = getattr(embedding, "weight", None)
        if weight is not None and not weight.is_meta:
            return weight.device
        runs_on = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
        return self.hf.device if runs_on is None else torch.device(runs_on)

    @cached_property
    def places(self) -> Places:
        """Where hosts and modules stand in the model as it is."""
        return Places(self.hf, self.family)

    @property
    def weights(self) -> Weights:
        """What of the standard weights this model has, and where. It asks this subject, so it is not kept here."""
        return Weights(self.hf, self.places, self.sizes_at)

    def weight(self, name: str, layer: int | None) -> Tensor | None:
        """A weight of a layer, or of the model, as a view of the parameter that cannot be written into.

        Returns:
            a tensor of the weight's layout; None for a bias of a projection that has none.

        Raises:
            UnavailableValueError: this model has no such weight, or none that is a plain matrix; the message says why.
            NoWeightsError: there is nowhere to load the weights from.
        """
        row = WEIGHTS[name]
        reason = self.weights.why_missing(row, layer)
        if reason:
            raise UnavailableValueError(f"`{weight_path(row, layer)}` does not exist here. {reason}")
        self.bring_weights()
        found = self.weights.read(row, self.weights.module(row, layer), layer)
        return None if found is None else read_only(found)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Every module by its own path, one that stands in several places under each; the model is at the empty one."""
        return self.places.modules

    @cached_property
    def survey(self) -> Survey:
        """What one pass of this model, under this load, comes by, and in which order."""
        return survey(self.hf, self.places, self.has_weights, self.input_device if self.has_weights else None)

    def family_at(self, layer: int | None) -> Family:
        """The family as it is on a layer, where layers are of several kinds; for None as it is around them."""
        return self.places.family(layer)

    def sizes_at(self, layer: int | None) -> dict[str, int]:
        """The sizes on a layer: what the config says, and of what it leaves out, or layers differ in, the lengths of
        the axes of what passes there."""
        if layer not in self._sizes_at:
            measured: dict[str, int] = {}
            for name, site in self.family_at(layer).values.items():
                value = VALUES[name]
                if layer is None or value.host == "model" or site.slot.split or site.slot.folded:
                    continue
                passing = self.survey.passing.get((self.places.of_site(value.host, layer, site), site.moment))
                shape = getattr(None if passing is None else site.slot.read(passing, self.sizes), "shape", ())
                if len(shape) == len(value.layout.axes):
                    for axis, length in zip(value.layout.axes, shape, strict=True):
                        if axis not in _OF_THE_MODEL and axis not in _OF_THE_CALL:
                            measured.setdefault(axis, length)
            stated = not self.family.derived and not self.family.kinds
            self._sizes_at[layer] = {**measured, **self.sizes} if stated else {**self.sizes, **measured}
        return self._sizes_at[layer]

    def batch_note(self, answers: Answers, root: nn.Module | None = None) -> BatchNote | None:
        """What tells modules that are called with a row for each token where one row of the batch ends; None where
        no value needs it."""
        return BatchNote(root or self.hf, answers) if self._has_token_rows else None

    @cached_property
    def _has_token_rows(self) -> bool:
        layers = {id(self.family_at(layer)): self.family_at(layer) for layer in range(self.sizes["num_layers"])}
        sites = (site for family in layers.values() for site in family.values.values())
        return any(site.moment in ("token rows in", "token rows out") for site in sites)

    def as_written(self) -> AsWritten:
        """Has compiled modules run as they are written until it is removed, those that wrap the model among them."""
        return AsWritten(self.hf, chain(self.places.paths, self._wrappers))

    def occurrences(self, answers: Answers, twin: nn.Module | None = None) -> Occurrences | None:
        """What tells the calls of shared modules apart in the passes, of the model or of its twin, for which
        `answers()` is true; None where every module stands in one place."""
        if not self.places.shares:
            return None
        paths = self.places.paths if twin is None else paths_of(twin)
        return Occurrences(self.hf if twin is None else twin, shared_paths(paths, self.survey.callers), answers)

    def make_survey(self) -> None:
        """Makes the survey now, before a pass attaches anything to the model of which the survey copies the
        structure."""
        self.survey  # noqa: B018

    # Paths: standard ones, as a user writes them, and the family's own.

    def host_path(self, host: Host, layer: int | None) -> str:
        """A host's own path, `model.layers.3.self_attn` say."""
        return self.places.host(host, layer)

    def module_path(self, host: Host, layer: int | None, name: str) -> str:
        """A module's own path, from its standard or its own name on a host."""
        return self.places.module(host, layer, name)

    def address(self, path: ValuePath) -> Address:
        """Where a value of the vocabulary is in this model.

        Raises:
            UnavailableValueError: this model does not have it; the message says why.
        """
        address = self._addresses.get(path)
        if address is None:
            reason = self.why_missing(path)
            if reason:
                raise UnavailableValueError(f"`{path}` does not exist here. {reason}")
            site = self.family_at(path.layer).values[path.name]
            own, sizes = self.places.of_site(path.value.host, path.layer, site), self.sizes_at(path.layer)
            address = self._bind(str(path), path.value, own, site.moment, site.slot, sizes)
            self._addresses[path] = address
        return address

    def why_missing(self, path: ValuePath) -> str:
        """Why a value does not exist at a path; empty where it does."""
        if not self.has_site(path.name):
            return self.why_unavailable(path.name)
        if path.value.derived:
            return self._why_not_derived(path)
        family = self.family_at(path.layer)
        if path.name not in family.values:
            return family.why_lacking(path.name)
        site = family.values[path.name]
        reason = self.places.why_missing(path.value.host, path.layer, site)
        if reason:
            return reason
        own = self.places.of_site(path.value.host, path.layer, site)
        if self.survey.failure:
            return f"No pass of this model could be run to see what it comes by: {self.survey.failure}."
        if (own, site.moment) not in self.survey.order:
            counted = self.family.native_sizes(self.hf.config).get("num_layers", self.sizes["num_layers"])
            more = f" The config counts {counted} layers." if (path.layer or 0) >= counted else ""
            return f"A pass of this model does not come by it: `{own or 'the model'}`, {MOMENTS[site.moment]}.{more}"
        if own in self.survey.repeated:
            return f"A pass of this model comes by it more than once: it calls `{own}` several times."
        if (own, site.moment) in self.survey.twice:
            return f"One call of `{own}` comes by it more than once: {MOMENTS[site.moment]}."
        return ""

    def _why_not_derived(self, path: ValuePath) -> str:
        for source in path.sources:
            reason = self.why_missing(source)
            if reason:
                return f"It is derived from `{source.name}`. {reason}"
        for name in path.value.weights:
            reason = self.weights.why_missing(WEIGHTS[name], path.layer)
            if reason:
                return f"It is derived from `{name}`. {reason}"
        if path.name == "head_contributions" and path.layer is not None:
            return why_no_parts(self.places, path.layer)
        return ""

    @cached_property
    def processes(self) -> int:
        """Over how many processes tensor parallelism has spread the weights."""
        return int(getattr(self.hf, "tp_size", None) or 1) if is_sharded(self.hf) else 1

    def has_site(self, name: str) -> bool:
        """Whether a value is derived, or has a site here that shows it whole."""
        value = VALUES[name]
        if value.derived:
            return all(self.has_site(source) for source in value.derived_from or ())
        return self.layer_with(name) is not None and not self._is_spread(value)

    def layer_with(self, name: str) -> int | None:
        """The first layer whose kind has a site for a value, 0 for a value of the model; None where there is none."""
        if VALUES[name].host == "model":
            return 0 if name in self.family.values else None
        layers = range(self.sizes["num_layers"])
        return next((layer for layer in layers if name in self.family_at(layer).values), None)

    def _is_spread(self, value: Value) -> bool:
        return self.processes > 1 and not _SPLIT_AXES.isdisjoint(value.layout.axes)

    def comes_before(self, one: Address, other: Address) -> bool:
        """Whether a pass is certainly past `one` when it waits at `other`."""
        now = other.rank
        if not isinstance(one.moment, OperationMoment):
            return one.rank is not None and now is not None and one.rank < now
        if isinstance(other.moment, OperationMoment) and one.module is other.module:
            return operation_rank(one) < operation_rank(other)
        left = self._rank(one.module_path, "exit")
        return left is not None and now is not None and left <= now

    def is_inside(self, module_path: str, here: Address) -> bool:
        """Whether a pass that waits at `here` is inside a module's forward."""
        start, now, end = (
            self._rank(module_path, "enter"),
            here.rank,
            self._rank(module_path, "exit"),
        )
        return start is not None and now is not None and end is not None and start < now < end

    def _rank(self, module_path: str, moment: Moment | OperationMoment) -> int | None:
        key = (module_path, "enter" if isinstance(moment, OperationMoment) else moment)
        return self.survey.order.get(key)

    def _bind(
        self,
        path: str,
        value: Value | None,
        own: str,
        moment: Moment | OperationMoment,
        slot: Slot | Whole | FirstArgument,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> Address:
        parts = own.split(".") if own else []
        holders = [self.modules[".".join(parts[:i])] for i in range(len(parts))]
        within = tuple(holder for holder in holders if not isinstance(holder, (nn.ModuleList, nn.ModuleDict)))
        overwritten = (own, moment) in self.survey.overwritten
        rank = self._rank(own, moment)
        return Address(path, value, own, self.modules[own], moment, slot, within, rank, sizes, overwritten)

    def native_address(self, module_path: str, standard_path: str, name: str) -> Address:
        """Where a module's `input`, `inputs` or `output` is."""
        key = f"{standard_path}.{name}" if standard_path else name
        if key not in self._addresses:
            moment, slot = NATIVE_NAMES[name]
            self._addresses[key] = self._bind(key, None, module_path, moment, slot)
        return self._addresses[key]

    def operation_address(self, module_path: str, path: str, chain: tuple[str, ...], name: str) -> Address:
        """Where the `input`, `inputs` or `output` of a call inside a module's forward is."""
        edge, slot = NATIVE_NAMES[name]
        moment = OperationMoment(chain, "enter" if edge == "enter" else "exit")
        return self._bind(f"{path}.{name}", None, module_path, moment, slot)

    def why_unavailable(self, name: str) -> str:
        """Why this model lacks a value of the vocabulary."""
        if self._is_spread(VALUES[name]):
            return (
                f"Tensor parallelism has spread it over {self.processes} processes, each of which holds a part of its "
                "heads or neurons. Load the model without a tensor parallel plan to have it whole."
            )
        for source in VALUES[name].derived_from or ():
            if not self.has_site(source):
                return f"It is derived from `{source}`. {self.why_unavailable(source)}"
        if name in self.family.unavailable or self.family.kinds == ():
            return self.family.why_lacking(name)
        return self.family_at(0).why_lacking(name)

    @cached_property
    def value_paths(self) -> list[ValuePath]:
        """The paths of all values that this model has, derived ones among them, in the order of its pass."""
        names = [name for name in VALUES if self.has_site(name)]
        paths = [path for path in all_paths(self.sizes["num_layers"], names) if self.is_available(path)]
        return sorted(paths, key=self.rank)

    def rank(self, path: ValuePath) -> int:
        """Where in the pass a value comes; a derived one at the last of what it is derived from."""
        if path.value.derived:
            return max(map(self.rank, path.sources), default=0)
        address = self.address(path)
        return self.survey.order[address.module_path, address.moment]

    def is_available(self, path: ValuePath) -> bool:
        """Whether this model has a value at a path: a pass of it came by the value's site."""
        return path in self._addresses or not self.why_missing(path)

    def unknown(self, host: Host, layer: int | None, name: str) -> Exception:
        """The error for a name that a host does not have, with near names or the host that has it."""
        where = HOSTS[host].format(layer=layer) or "the model"
        if name in WEIGHTS and WEIGHTS[name].host != host:
            row = WEIGHTS[name]
            example = weight_path(row, (layer or 0) if row.host != "model" else None)
            example = re.sub(r"\.(\d+)", r"[\1]", f"model.{example}")
            return UnknownValueError(
                f"`{name}` does not hang on {where}; it is a weight of the {row.host}: `{example}`."
            )
        if name in VALUES:
            owner = VALUES[name].host
            example = ValuePath(name, (layer or 0) if owner != "model" else None)
            return UnknownValueError(f"`{name}` does not hang on {where}; it is a value of the {owner}: `{example}`.")
        here = self.modules.get(self.host_path(host, layer))
        children = [child for child, _ in here.named_children()] if here is not None else []
        reach = {
            word.name: _reached(word.host, host, word.name)
            for word in [*VALUES.values(), *MODULES.values(), *WEIGHTS.values()]
        }
        hint = near(name, [*children, *reach], shown=reach, layer=layer)
        return UnknownValueError(f"{where} has no value or module called `{name}`.{hint}")


def _reached(owner: Host, host: Host, name: str) -> str:
    """A name as it is said on a host: `mlp.mlp_output` on a layer; by its whole path where it is not below the host."""
    if owner == host:
        return name
    if host == "layer" and owner in SUBLAYERS:
        return f"{SUBLAYERS[owner]}.{name}"
    path = HOSTS[owner].format(layer="i").replace(".i", "[i]")
    return ".".join(filter(None, ("model", path, name)))


def operation_rank(address: Address) -> tuple[int, ...]:
    """The place of a call in the order in which a forward makes its calls."""
    assert isinstance(address.moment, OperationMoment)
    source = source_of(innermost(type(address.module).forward))
    index = source[address.moment.chain[0]].index
    return (index, int(address.moment.edge == "exit" and len(address.moment.chain) == 1))


_SPLIT_AXES = {"num_heads", "num_kv_heads", "intermediate_size"}
"""The axes that tensor parallelism splits."""


_OF_THE_MODEL = ("num_layers", "hidden_size", "vocab_size")
"""The sizes that are one for all layers, and are not measured on each."""

_OF_THE_CALL = ("batch", "seq", "query", "key")
"""The axes whose lengths are those of a call."""
