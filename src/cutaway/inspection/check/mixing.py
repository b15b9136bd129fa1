"""Whether the pattern is the one by which the load's own attention mixes the values.

A fused kernel has no pattern to look at: the family's eager function makes it, beside the kernel, and where it is
edited the layer goes on with what that function returns. So each layer's scores are edited by one rounding, each block
is given the stream that it had before, and the head outputs must be those of the kernel up to rounding: a few of the
dtype, and those of the scores, which the softmax takes over in proportion to how large they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cutaway.errors import CheckError
from cutaway.inspection.check.places import Place, Seen, Tap, run
from cutaway.inspection.check.report import CheckResult, Untested
from cutaway.subject.subject import Subject
from cutaway.vocabulary import ValuePath

_PRODUCTS = {"highest": 2.0**-23, "high": 2.0**-10, "medium": 2.0**-7}
"""How far a product of queries and keys may be off, relative to itself, by torch's setting for float32 matrices."""
_ROUNDINGS = 8


def pattern_is_the_kernels(
    subject: Subject, inputs: Mapping[str, Tensor], at: Sequence[Place], kernel: Seen
) -> CheckResult | Untested:
    """Compares the head outputs of two passes, layer by layer.

    Args:
        at: all places.
        kernel: what passed there where nothing was edited.

    Raises:
        CheckError: under an implementation of transformers' own, they differ by more than rounding.
    """
    implementation = str(subject.hf.config._attn_implementation)
    promise = f"attention_probabilities mix the values into the head outputs of {implementation}, up to rounding"
    found = _head_outputs(subject, inputs, at, kernel)
    for layer, heads in found.items():
        seen = {name: kernel.values[str(ValuePath(name, layer))] for name in _COMPARED}
        bound = _rounding(seen["attention_scores"], seen["attention_values"])
        difference = (heads.double() - seen["attention_head_outputs"].double()).abs().nan_to_num(0.0).max().item()
        if difference > bound:
            why = (
                f"the head outputs of layer {layer} differ by {difference:.1e} from those that eager attention has for "
                f"the same stream, where {bound:.1e} would be rounding"
            )
            if _is_transformers_own(implementation):
                path = ValuePath("attention_probabilities", layer)
                text = f"`{path}` is not the pattern of {implementation} attention: {why}."
                raise CheckError(text, value=str(path), claim="pattern")
            return Untested(promise, f"{why}; scores and pattern are eager attention's")
    return CheckResult(promise, len(found))


_COMPARED = ("attention_scores", "attention_values", "attention_head_outputs")


def _head_outputs(
    subject: Subject, inputs: Mapping[str, Tensor], at: Sequence[Place], kernel: Seen
) -> dict[int, Tensor]:
    """The head outputs of each layer that has all that is compared, its scores edited."""
    where = {(place.paths[0].name, place.layer): place for place in at}
    layers = [n for n in range(subject.sizes["num_layers"]) if all((name, n) in where for name in _COMPARED)]
    found: dict[int, Tensor] = {}
    taps: list[Tap] = []

    def tap(name: str, layer: int, callback: Callable[[Tensor], Tensor | None]) -> None:
        address = where[name, layer].address

        def act(passing: Any) -> Any:
            new = callback(address.read(passing))
            return None if new is None else address.write(passing, new)

        taps.append(Tap(address.module, address.moment, act, address.module_path))

    for layer in layers:
        if ("layer_input", layer) in where:
            stream = kernel.values[where["layer_input", layer].name]
            tap("layer_input", layer, lambda _, stream=stream: stream.clone())
        tap("attention_scores", layer, lambda scores: scores.nextafter(torch.zeros_like(scores)))
        tap("attention_head_outputs", layer, lambda heads, layer=layer: found.update({layer: heads.clone()}))
    run(subject, inputs, taps)
    return found


def _rounding(scores: Tensor, values: Tensor) -> float:
    """How far head outputs may part that are mixed of these values by softmax of these scores."""
    counted = scores[scores.isfinite() & (scores > torch.finfo(torch.float32).min / 2)]
    largest = counted.abs().max().item() if counted.numel() else 0.0
    product = _PRODUCTS[torch.get_float32_matmul_precision()]
    share = _ROUNDINGS * (torch.finfo(values.dtype).eps + product * (1 + largest))
    return share * values.abs().nan_to_num(0.0).max().item()


def _is_transformers_own(implementation: str) -> bool:
    from transformers import AttentionInterface

    function = AttentionInterface._global_mapping.get(implementation)
    return getattr(function, "__module__", "").startswith("transformers.")
