"""The oracles that are transformers' own: what it records of a pass, and its `generate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from catalogue import raw
from catalogue.oracles import STEPS, Outcome
from catalogue.specimen import PADDED, Specimen, same, told

RECORDS = {
    "hidden_states": ("output_hidden_states", "layer_input"),
    "attentions": ("output_attentions", "attention_probabilities"),
    "router_logits": ("output_router_logits", "router_logits"),
}
"""What transformers records, how it is asked for, and the value that it is."""


def records(specimen: Specimen) -> Outcome:
    """`layer_input` is what transformers records as `hidden_states`, patterns are its `attentions`, and routers'
    scores its `router_logits`, where the class records them in the same meaning."""
    outcome, inputs = Outcome(), specimen.padded
    layers = range(specimen.subject.sizes["num_layers"])
    for record, (flag, name) in RECORDS.items():
        if record == "attentions" and specimen.kernel != "eager":
            continue  # no other kernel returns them
        if record == "router_logits" and not specimen.subject.has_site(name):
            continue
        given = _recorded(specimen, inputs, record, flag, outcome)
        served = [layer for layer in layers if any(p.name == name and p.layer == layer for p in specimen.paths)]
        if not given or not served:
            if given:
                outcome.skip(f"{record}: `{name}` is not served: {specimen.subject.why_unavailable(name)}")
            continue
        found = specimen.model.read(*(f"{_host(name)}.{name}".format(layer) for layer in served), **inputs)
        own = {layer: found[f"{_host(name)}.{name}".format(layer)] for layer in served}
        _compare(outcome, specimen, record, own, given)
    return outcome


def _host(name: str) -> str:
    return {"layer_input": "layers.{}", "attention_probabilities": "layers.{}.self_attn"}.get(name, "layers.{}.mlp")


def _recorded(
    specimen: Specimen, inputs: Mapping[str, Any], record: str, flag: str, outcome: Outcome
) -> Sequence[Tensor]:
    before = {module: dict(module._forward_hooks) for module in specimen.hf.modules()}
    try:
        with torch.no_grad():
            output = specimen.hf(**inputs, **{flag: True})
    except Exception as error:  # whatever the class raises when asked
        outcome.skip(f"{record}: transformers fails to record it: {told(error)}")
        return []
    finally:
        _take_off(specimen, before)
    given = output.get(record) if isinstance(output, Mapping) else None
    found = [tensor for tensor in given or () if isinstance(tensor, Tensor)]
    if not found:
        outcome.skip(f"{record}: the class records none")
    return found


def _take_off(specimen: Specimen, before: Mapping[Any, Mapping[int, Any]]) -> None:
    """Takes off what transformers has installed to record by."""
    for module, hooks in before.items():
        for key in set(module._forward_hooks) - set(hooks):
            del module._forward_hooks[key]
        vars(module).pop("_output_capturing_hooks_installed", None)


def _compare(
    outcome: Outcome, specimen: Specimen, record: str, own: Mapping[int, Tensor], given: Sequence[Tensor]
) -> None:
    total, served = specimen.subject.sizes["num_layers"], list(own)
    if record == "hidden_states":
        pairs = [(layer, given[layer]) for layer in served] if len(given) == total + 1 else []
        if pairs and not any(same(own[layer], tensor) for layer, tensor in pairs) and _are_outputs(specimen, given):
            outcome.skip("hidden_states: the class records the stream that leaves each block")
            return
    elif len(given) == len(served):
        pairs = list(zip(served, given, strict=True))
    else:
        pairs = [(layer, given[layer]) for layer in served] if len(given) == total else []
    if not pairs:
        outcome.skip(f"{record}: the class records {len(given)} tensors for {total} layers")
    for layer, tensor in pairs:
        value = own[layer].flatten(0, 1) if record == "router_logits" and tensor.ndim == 2 else own[layer]
        outcome.case(same(value, tensor), f"{record} of layer {layer}")


def _are_outputs(specimen: Specimen, given: Sequence[Tensor]) -> bool:
    """Whether each record is what a block returns, and not what it is given."""
    path = "layers.0.layer_output"
    spot = specimen.spots.get(path)
    return spot is not None and same(raw.seen(specimen.hf, [spot], specimen.padded)[path], given[0])


def generation(specimen: Specimen) -> Outcome:
    """Greedy generation with every value read at each step is the plain one in ids and logits, and the values of the
    first layer of each kind are what raw hooks see at each step of the plain one."""
    outcome = Outcome()
    if not specimen.hf.can_generate():
        outcome.skip("the class does not generate")
        return outcome
    greedy: dict[str, Any] = {"max_new_tokens": STEPS, "min_new_tokens": STEPS, "do_sample": False}
    greedy |= {"output_logits": True, "return_dict_in_generate": True}
    batches = [("no padding", specimen.inputs)]
    if specimen.is_padded:
        batches.append(("left padding", PADDED))
    for which, inputs in batches:
        seen: dict[str, list[Tensor]] = {}
        spots = [spot for spot in specimen.spots.values() if _is_looked_at(specimen, spot)]
        try:
            with raw.attached(specimen.hf, {spot: _noted(seen.setdefault(spot.path, [])) for spot in spots}):
                plain: Any = specimen.hf.generate(**inputs, **greedy)
        except Exception as error:  # whatever transformers' generate raises for the class
            outcome.skip(f"plain `generate`, {which}: {told(error)}")
            continue
        read: dict[str, list[Any]] = {spot.path: [] for spot in spots}
        with ExitStack() as stack:
            run = stack.enter_context(specimen.model.generate(**inputs, **greedy))
            for _ in run:
                for path in specimen.paths:
                    value = getattr(specimen.host(path), path.name)
                    if str(path) in read:
                        read[str(path)].append(value.clone())
        out: Any = run.output
        outcome.case(torch.equal(out.sequences, plain.sequences), f"the ids, {which}")
        outcome.case(len(out.logits) == len(plain.logits), f"the number of steps, {which}")
        for step, (mine, theirs) in enumerate(zip(out.logits, plain.logits, strict=False)):
            outcome.case(same(mine, theirs), f"the logits of step {step}, {which}")
        for spot in spots:
            pairs = list(zip(read[spot.path], seen[spot.path], strict=False))
            shown = [raw.as_shown(spot, theirs, mine) for mine, theirs in pairs]
            alike = [theirs is not None and same(mine, theirs) for (mine, _), theirs in zip(pairs, shown, strict=True)]
            held = len(read[spot.path]) == len(seen[spot.path]) == len(plain.logits) and all(alike)
            outcome.case(held, f"`{spot.path}` over the steps, {which}")
    return outcome


def _is_looked_at(specimen: Specimen, spot: raw.Spot) -> bool:
    in_layer = spot.path.startswith(tuple(f"layers.{layer}." for layer in specimen.kinds))
    return in_layer and spot.moment in ("output", "input", "stream")


def _noted(to: list[Tensor]) -> raw.Act:
    def act(tensor: Tensor) -> None:
        to.append(tensor.detach().clone())

    return act
