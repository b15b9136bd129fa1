"""The subject: the model under study, with all that is known about it.

Hosts are views of a subject and hold nothing else. Nothing here refers back to a host or a trace, so a model has no
reference cycle and its memory is freed as soon as the last name of it is gone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cutaway.errors import NoWeightsError, UnavailableValueError
from cutaway.families import Family, derive, family_of_model
from cutaway.sites import OF_TOKEN_ROWS, STREAMS, Moment, OperationMoment
from cutaway.subject.address import Address
from cutaway.subject.binding import NATIVE_NAMES, bind
from cutaway.subject.contributions import why_no_parts
from cutaway.subject.lacking import why_not_reached
from cutaway.subject.limits import Limits, device_of_ids, limits_of
from cutaway.subject.places import Places
from cutaway.subject.read_only import read_only
from cutaway.subject.sizes import measured_sizes
from cutaway.subject.survey import Survey, survey
from cutaway.subject.weights import Weights, weight_path
from cutaway.tracing import AsWritten
from cutaway.tracing.attach import Answers
from cutaway.tracing.batch import BatchNote
from cutaway.tracing.occurrences import Occurrences, paths_of, shared_paths
from cutaway.tracing.twin import is_sharded
from cutaway.vocabulary import VALUES, WEIGHTS, Host, Value, ValuePath, all_paths


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

    @property
    def embedding(self) -> nn.Module:
        """The module that ids go into."""
        return self.modules[self.module_path("model", None, "embed_tokens")]

    @cached_property
    def limits(self) -> Limits:
        """What the ids of a call must keep within."""
        return limits_of(self.hf, self.sizes["vocab_size"], self.embedding)

    @property
    def input_device(self) -> torch.device:
        """Where the model takes its ids."""
        return device_of_ids(self.hf, self.embedding)

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
            measured = measured_sizes(self.survey, self.places, self.sizes, layer)
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
        return any(site.moment in OF_TOKEN_ROWS for site in sites)

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
            in_stream = any(moment in STREAMS for moment in self.places.moments(own))
            address = bind(
                *(self.modules, self.survey, str(path), path.value, own, site.moment, site.slot, sizes),
                in_stream=in_stream,
            )
            self._addresses[path] = address
        return address

    def why_missing(self, path: ValuePath) -> str:
        """Why a value does not exist at a path; empty where it does."""
        if not self.has_site(path.name):
            return self.why_unavailable(path.name, path.layer)
        if path.value.derived:
            return self._why_not_derived(path)
        counted = self.family.native_sizes(self.hf.config).get("num_layers", self.sizes["num_layers"])
        return why_not_reached(self.survey, self.places, path, counted)

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

    def rank_at(self, module_path: str, moment: Moment | OperationMoment) -> int | None:
        """When in a pass a moment of a module comes; None where the survey did not come by it."""
        return self.survey.rank(module_path, moment)

    def native_address(self, module_path: str, standard_path: str, name: str) -> Address:
        """Where a module's `input`, `inputs` or `output` is."""
        key = f"{standard_path}.{name}" if standard_path else name
        if key not in self._addresses:
            moment, slot = NATIVE_NAMES[name]
            self._addresses[key] = bind(self.modules, self.survey, key, None, module_path, moment, slot)
        return self._addresses[key]

    def operation_address(self, module_path: str, path: str, chain: tuple[str, ...], name: str) -> Address:
        """Where the `input`, `inputs` or `output` of a call inside a module's forward is."""
        edge, slot = NATIVE_NAMES[name]
        moment = OperationMoment(chain, "enter" if edge == "enter" else "exit")
        return bind(self.modules, self.survey, f"{path}.{name}", None, module_path, moment, slot)

    def why_unavailable(self, name: str, layer: int | None = None) -> str:
        """Why this model lacks a value of the vocabulary; where layers are of several kinds, why that layer does."""
        if self._is_spread(VALUES[name]):
            return (
                f"Tensor parallelism has spread it over {self.processes} processes, each of which holds a part of its "
                "heads or neurons. Load the model without a tensor parallel plan to have it whole."
            )
        for source in VALUES[name].derived_from or ():
            if not self.has_site(source):
                return f"It is derived from `{source}`. {self.why_unavailable(source, layer)}"
        if name in self.family.unavailable or self.family.kinds == ():
            return self.family.why_lacking(name)
        return self.family_at(layer or 0).why_lacking(name)

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


_SPLIT_AXES = {"num_heads", "num_kv_heads", "intermediate_size"}
"""The axes that tensor parallelism splits."""
