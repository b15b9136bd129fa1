"""What transformers itself records of a pass, beside the values of the same names: an oracle from outside.

A modelling file says what of it can be recorded: the stream between blocks as `hidden_states`, the patterns of an
eager attention as `attentions`, the routers' scores as `router_logits`. Where a class records them, they are the very
tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.inspection.check.compare import differs, same
from cutaway.inspection.check.report import CheckResult, Untested
from cutaway.subject.subject import Subject
from cutaway.vocabulary import ValuePath

RECORDS = {
    "hidden_states": "layer_input",
    "attentions": "attention_probabilities",
    "router_logits": "router_logits",
}
"""What transformers calls each record, and the value that it is."""


def records_agree(
    subject: Subject, inputs: Mapping[str, Tensor], values: Mapping[str, Any]
) -> Iterator[CheckResult | Untested]:
    """Compares what transformers records with the values of a pass with the same inputs.

    Raises:
        CheckError: naming the value that is another than what is recorded.
    """
    recorded, failure = _recorded(subject, inputs)
    for record, name in RECORDS.items():
        promise = f"{name} is what transformers records as {record}, bit for bit"
        if not subject.has_site(name) or (record == "attentions" and subject.hf.config._attn_implementation != "eager"):
            continue
        layers = [layer for layer in range(subject.sizes["num_layers"]) if str(ValuePath(name, layer)) in values]
        given = recorded.get(record)
        if not layers or (not failure and not given):
            continue
        if failure or given is None:
            yield Untested(promise, f"transformers fails to record it: {failure}")
            continue
        pairs = _pairs(record, layers, given, subject.sizes["num_layers"])
        if not pairs:
            yield Untested(promise, f"it records {len(given)} tensors for {len(layers)} layers that have the value")
            continue
        if record == "hidden_states" and _are_outputs(values, pairs):
            yield CheckResult("layer_output is what transformers records as hidden_states, bit for bit", len(pairs))
            continue
        for layer, tensor in pairs:
            path = str(ValuePath(name, layer))
            found = values[path].flatten(0, 1) if record == "router_logits" and tensor.ndim == 2 else values[path]
            if not same(found, tensor):
                differs(path, found, tensor, f"what transformers records as {record}", "record")
        yield CheckResult(promise, len(pairs))


@contextmanager
def _without_what_is_installed(hf: nn.Module) -> Generator[None]:
    """Takes off again what transformers installs on modules to record by, which it would leave there."""
    hooks = [(module, dict(module._forward_hooks)) for module in hf.modules()]
    marks = [(module, _INSTALLED in vars(module)) for module in hf.modules()]

    def take_off() -> None:
        for module, before in hooks:
            for key in set(module._forward_hooks) - set(before):
                module._forward_hooks.pop(key, None)
        for module, had in marks:
            if not had:
                vars(module).pop(_INSTALLED, None)

    try:
        try:
            yield
        finally:
            take_off()
    except BaseException:
        take_off()  # once more, where an interrupt has cut it short
        raise


_INSTALLED = "_output_capturing_hooks_installed"
"""By which transformers knows that it has."""


def _are_outputs(values: Mapping[str, Any], pairs: Sequence[tuple[int, Tensor]]) -> bool:
    """Whether a class records the stream that leaves each block, and not the one that enters it, as Mamba's does."""
    outputs = [(values.get(str(ValuePath("layer_output", layer))), tensor) for layer, tensor in pairs]
    return all(isinstance(output, Tensor) and same(output, tensor) for output, tensor in outputs)


def _pairs(record: str, layers: Sequence[int], given: Sequence[Tensor], total: int) -> list[tuple[int, Tensor]]:
    """Each layer with what is recorded of it; none where it cannot be told which is whose."""
    if record == "hidden_states":
        return [(layer, given[layer]) for layer in layers] if len(given) == total + 1 else []
    if len(given) == len(layers):
        return list(zip(layers, given, strict=True))
    return [(layer, given[layer]) for layer in layers] if len(given) == total else []


def _recorded(subject: Subject, inputs: Mapping[str, Tensor]) -> tuple[dict[str, Sequence[Tensor]], str]:
    """What a pass records, by name; or why it fails."""
    asked: dict[str, Any] = {"output_hidden_states": True}
    if subject.hf.config._attn_implementation == "eager":
        asked["output_attentions"] = True
    if subject.has_site("router_logits"):
        asked["output_router_logits"] = True
    written = subject.as_written()
    try:
        written.put_on()
        with _without_what_is_installed(subject.hf), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            output = subject.hf(**inputs, **asked)
    except Exception as error:  # whatever the model raises by itself
        return {}, f"{type(error).__name__}: {error}".strip().partition("\n")[0]
    finally:
        written.remove()
    found: dict[str, Sequence[Tensor]] = {}
    for record in RECORDS:
        tensors = getattr(output, record, None)
        if isinstance(tensors, (tuple, list)):
            found[record] = [tensor for tensor in tensors if isinstance(tensor, Tensor)]  # pyright: ignore
    return found, ""
