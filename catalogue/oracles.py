"""The oracles: plain transformers and raw torch hooks, and how often what Cutaway gives is what they give.

Every comparison counts as one case, and is bit for bit but for gradients. What cannot be compared is no case, and where
there is none the reason is told: nothing of nothing is no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from catalogue import raw, tiny
from catalogue.raw import Spot
from catalogue.specimen import IDS, Specimen, quiet, same, told
from cutaway import StandardizedTransformer
from cutaway.errors import UnavailableValueError
from cutaway.families.stream import Normed, names_in

STEPS = 3
_ROUNDING = 1e-5
"""By how much of the largest entry a gradient may be off: sums over its paths are made in an order of their own."""

_MOST_TOLD = 4


@dataclass
class Outcome:
    """How many cases held, of how many tried; what differed, and why others could not be tried."""

    held: int = 0
    tried: int = 0
    differs: list[str] = field(default_factory=list[str])
    untried: list[str] = field(default_factory=list[str])

    def case(self, held: bool, told: str) -> None:
        """Counts a case."""
        self.tried += 1
        self.held += held
        if not held and len(self.differs) < _MOST_TOLD:
            self.differs.append(told)

    def skip(self, why: str) -> None:
        """Notes what is not tried."""
        if why not in self.untried and len(self.untried) < _MOST_TOLD:
            self.untried.append(why)

    def add(self, other: Outcome) -> None:
        """Counts the cases of another too."""
        self.held, self.tried = self.held + other.held, self.tried + other.tried
        self.differs += other.differs
        self.untried += [why for why in other.untried if why not in self.untried]


def check(specimen: Specimen) -> Outcome:
    """`check()` passes: its own cases, and what it could not put to the test."""
    outcome, report = Outcome(), specimen.model.check()
    outcome.held = outcome.tried = sum(result.cases for result in report)
    for skipped in report.untested:
        outcome.skip(f"{skipped.promise}: {skipped.why}")
    return outcome


def logits(specimen: Specimen) -> Outcome:
    """The logits of a pass of which every listed value is read are those of the plain call."""
    outcome, names = Outcome(), [str(path) for path in specimen.paths]
    for inputs, which in ((specimen.inputs, "no padding"), (specimen.padded, "left padding")):
        if which == "left padding" and not specimen.is_padded:
            outcome.skip("left padding: the model takes no mask, or makes no numbers of one")
            continue
        results: list[Tensor] = []
        hook = specimen.hf.register_forward_hook(lambda *a, to=results: to.append(raw.result_of(a[-1]).clone()))
        try:
            found = specimen.model.read(*names, **inputs)
        finally:
            hook.remove()
        plain = specimen.plain(inputs)
        if not bool(plain.isfinite().any()):
            outcome.skip(f"{which}: the plain model makes no numbers")
            continue
        outcome.case(len(results) == 1 and same(results[0], plain), f"the logits with {which}")
        if "logits" in found:
            outcome.case(same(found["logits"], plain), f"the value `logits` with {which}")
    return outcome


def values(specimen: Specimen) -> Outcome:
    """Each value is what a raw hook sees where its family says that it is, in a batch padded on the left."""
    outcome, spots = Outcome(), specimen.spots
    if not spots:
        outcome.skip("no value stands where a raw hook comes by once")
        return outcome
    seen = raw.seen(specimen.hf, spots.values(), specimen.padded)
    found = specimen.model.read(*spots, **specimen.padded)
    for path, spot in spots.items():
        shown = raw.as_shown(spot, seen[path], found[path])
        outcome.case(shown is not None and same(found[path], shown), f"`{path}`")
    return outcome


def _multiplied(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        return value + 1
    return value * 1.5 + 1


def _edit_of(specimen: Specimen, spot: Spot) -> Callable[[Tensor], Tensor]:
    """An edit that means the same in the value's axes and in those in which it passes."""
    name = spot.path.rpartition(".")[2]
    if name == "expert_indices":
        experts = specimen.subject.sizes_at(_layer(spot.path)).get("num_experts", 2)
        return lambda value: (value + 1) % experts
    if spot.moment == "softmax":
        return lambda value: value * 0.5  # added to all scores of a query, a number changes nothing
    return _multiplied


def _layer(path: str) -> int | None:
    parts = path.split(".")
    return int(parts[1]) if parts[0] == "layers" else None


def _in_columns(spot: Spot, edit: Callable[[Tensor], Tensor]) -> raw.Act:
    if not spot.columns:
        return edit

    def act(tensor: Tensor) -> Tensor:
        new = tensor.clone()
        raw.part_of(spot, new).copy_(edit(raw.part_of(spot, tensor)))
        return new

    return act


def edits(specimen: Specimen) -> Outcome:
    """An edit by name is the same edit by a raw hook: in the first layer of each kind and around the layers, by
    `hooks` and in a trace, of every value that raw torch has."""
    outcome, inputs, plain = Outcome(), specimen.padded, specimen.plain(specimen.padded)
    idle = 0
    for path in specimen.paths:
        spot = specimen.spots.get(str(path))
        if spot is None or path.value.read_only or path.name == "attention_mask":
            continue
        if path.layer is not None and path.layer not in specimen.kinds:
            continue
        edit = _edit_of(specimen, spot)
        try:
            expected = raw.run(specimen.hf, inputs, {spot: _in_columns(spot, edit)})
        except Exception as error:  # whatever the plain model raises of such an edit
            outcome.skip(f"`{path}` edited by a raw hook: {told(error)}")
            continue
        if same(expected, plain):
            idle += 1
            continue
        with torch.no_grad(), specimen.model.hooks({str(path): edit}):
            outcome.case(same(raw.result_of(specimen.hf(**inputs)), expected), f"`{path}` by `hooks`")
        if specimen.subject.has_site("logits"):
            with specimen.model.trace(**inputs):
                host = specimen.host(path)
                setattr(host, path.name, edit(getattr(host, path.name)))
                found = specimen.model.logits.clone()
            outcome.case(same(found, expected), f"`{path}` in a trace")
    if idle:
        outcome.skip(f"{idle} edits change nothing by a raw hook either")
    return outcome


def skipping(specimen: Specimen) -> Outcome:
    """A layer, an attention, a mixer or an MLP that is passed over is the plain model whose module returns its
    input."""
    outcome, inputs = Outcome(), specimen.inputs
    if not specimen.subject.has_site("logits"):
        outcome.skip("the model has no logits")
        return outcome
    for layer in specimen.kinds:
        modules = specimen.subject.family_at(layer).modules["layer"]
        for host in ("layer", *(name for name in ("self_attn", "mixer", "mlp") if name in modules)):
            which = f"layers.{layer}" + ("" if host == "layer" else f".{host}")
            view = specimen.model.layers[layer] if host == "layer" else getattr(specimen.model.layers[layer], host)
            module = specimen.hf.get_submodule(view._module_path)
            returned = raw.returned(specimen.hf, module, inputs)
            if len(returned) != 1:
                outcome.skip(f"`{which}` is called {len(returned)} times in a pass")
                continue
            try:
                with raw.passed_over(module, pair=returned[0]):
                    expected = specimen.plain(inputs)
            except Exception as error:  # whatever the plain model raises without it
                outcome.skip(f"the plain model without `{which}`: {told(error)}")
                continue
            with specimen.model.trace(**inputs):
                view.skip()
                found = specimen.model.logits.clone()
            outcome.case(same(found, expected), f"`{which}`")
    return outcome


def gradients(specimen: Specimen) -> Outcome:
    """The gradient of each value in the first layer of each kind is torch's own of a copy put in its place."""
    outcome, inputs = Outcome(), specimen.inputs
    if not specimen.subject.has_site("logits"):
        outcome.skip("the model has no logits")
        return outcome
    for layer in specimen.kinds:
        spots = _differentiable(specimen, layer)
        try:
            expected = _raw_gradients(specimen, spots)
        except Exception as error:  # whatever the plain model raises with autograd on
            outcome.skip(f"the plain model with autograd: {told(error)}")
            return outcome
        with specimen.model.trace(grad=True, **inputs):
            read = {path: getattr(specimen.host(path), path.name) for path in specimen.paths if str(path) in spots}
            _loss(specimen.model.logits).backward()
            found = {str(path): value.grad for path, value in read.items()}
        specimen.hf.zero_grad(set_to_none=True)
        for path, gradient in expected.items():
            mine = found[path]
            if gradient is None:
                outcome.case(mine is None or not bool(mine.any()), f"`{path}`, of which the plain model has none")
                continue
            shown = None if mine is None else raw.as_shown(spots[path], gradient, mine)
            off = None if mine is None or shown is None else (mine - shown).abs().nan_to_num(0).max().item()
            bound = _ROUNDING * gradient.abs().nan_to_num(0, 0, 0).max().item()
            outcome.case(off is not None and off <= bound, f"`{path}`: off by {off} where {bound:.1e} is allowed")
    return outcome


def _differentiable(specimen: Specimen, layer: int) -> dict[str, Spot]:
    """The spots of a layer's values of floating point, one of each place."""
    found: dict[Any, Spot] = {}
    for path in specimen.paths:
        spot = specimen.spots.get(str(path))
        if spot is not None and path.layer == layer and not path.value.read_only and path.name != "expert_indices":
            found.setdefault(specimen.subject.address(path).place, spot)
    return {spot.path: spot for spot in found.values()}


def _loss(logits: Tensor) -> Tensor:
    return logits.float().log_softmax(dim=-1)[..., 7].mean()


def _raw_gradients(specimen: Specimen, spots: Mapping[str, Spot]) -> dict[str, Tensor | None]:
    copies: dict[str, Tensor] = {}

    def keep(spot: Spot) -> raw.Act:
        def act(tensor: Tensor) -> Tensor | None:
            own = tensor if spot.moment == "stream" or not tensor.requires_grad else tensor.clone()
            if own.requires_grad:
                own.retain_grad()
            copies[spot.path] = own
            return None if own is tensor else own

        return act

    result = raw.run(specimen.hf, specimen.inputs, {spot: keep(spot) for spot in spots.values()}, grad=True)
    _loss(result).backward()
    specimen.hf.zero_grad(set_to_none=True)
    return {path: copy.grad for path, copy in copies.items()}


def scanning(specimen: Specimen) -> Outcome:
    """A scan has the shapes and dtypes of a run, of every value."""
    outcome = Outcome()
    run = specimen.model.read(*(str(path) for path in specimen.paths), **specimen.inputs)
    try:
        with specimen.model.scan(**specimen.inputs):
            found = {str(path): getattr(specimen.host(path), path.name) for path in specimen.paths}
    except UnavailableValueError as error:
        outcome.skip(told(error))
        return outcome
    for path, value in found.items():
        if isinstance(value, Tensor):
            alike = value.shape == run[path].shape and value.dtype == run[path].dtype
            outcome.case(alike, f"`{path}`: {list(value.shape)}, {list(run[path].shape)} in a run")
    return outcome


def sums(specimen: Specimen) -> Outcome:
    """The sum that a family states is the block's output as a raw hook sees it, bit for bit, in each layer."""
    outcome = Outcome()
    names = [str(path) for path in specimen.paths if path.layer is not None and not path.value.derived]
    found = specimen.model.read(*names, **specimen.padded) if names else {}
    for layer in range(specimen.subject.sizes["num_layers"]):
        family, block = specimen.subject.family_at(layer), specimen.model.layers[layer]._module_path
        if not family.stream:
            outcome.skip(family.no_sum or "the family states no sum")
            continue
        module = specimen.hf.get_submodule(block)
        own = {name.rpartition(".")[2]: found[name] for name in names if name.startswith(f"layers.{layer}.")}
        missing = [term for term in names_in(family.stream) if term not in own]
        if missing:
            outcome.skip(f"the sum is of `{missing[0]}`, which is not served here")
            continue
        seen = raw.seen(specimen.hf, [Spot("block", module, "output")], specimen.padded)["block"]
        with torch.no_grad():
            total = _total(family.stream, own, module)
        outcome.case(same(total, seen), f"layer {layer}")
    return outcome


def _total(term: Any, values: Mapping[str, Tensor], block: Any) -> Tensor:
    """A sum of a family's, its terms from left to right."""
    if isinstance(term, str):
        return values[term]
    if isinstance(term, tuple):
        first, *rest = (_total(part, values, block) for part in term)
        for part in rest:
            first = first + part
        return first
    inner = _total(term.term, values, block)
    if isinstance(term, Normed):
        return block.get_submodule(term.by)(inner)
    return inner * (getattr(block, term.by) if term.learned else term.by)


def bfloat16(case: tiny.Case) -> Outcome:
    """The class opens in bfloat16, its check passes, and reading every value leaves its logits as they are."""
    outcome = Outcome()
    try:
        hf = tiny.build(case, dtype=torch.bfloat16)
        with torch.no_grad():
            hf(input_ids=IDS)
    except Exception as error:  # whatever the class raises in bfloat16
        outcome.skip(f"the plain model: {told(error)}")
        return outcome
    with quiet():
        specimen = Specimen(hf, StandardizedTransformer(hf))
        outcome.add(check(specimen))
        outcome.add(logits(specimen))
    return outcome
