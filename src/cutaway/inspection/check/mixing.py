"""Whether the pattern is the one by which the load's own attention mixes the values.

Asked for its scores or pattern, a layer is run by its family's eager function in place of a fused kernel. At each
layer both are given the same stream, and the head outputs must agree up to rounding: a few roundings of the dtype, and
those of the scores, which the softmax takes over in proportion to how large they are.
"""

from __future__ import annotations

import torch

from cutaway.errors import CheckError
from cutaway.inspection.check.places import Seen
from cutaway.inspection.check.report import CheckResult, Untested
from cutaway.subject.subject import Subject
from cutaway.vocabulary import ValuePath

_PRODUCTS = {"highest": 2.0**-23, "high": 2.0**-10, "medium": 2.0**-7}
"""How far a product of queries and keys may be off, relative to itself, by torch's setting for float32 matrices."""
_ROUNDINGS = 8


def pattern_is_the_kernels(subject: Subject, kernel: Seen, eager: Seen) -> CheckResult | Untested:
    """Compares the head outputs of two passes, layer by layer.

    Args:
        kernel: a pass under the load's own implementation.
        eager: one in which every layer's pattern was asked for, with the blocks' inputs of the other.

    Raises:
        CheckError: under an implementation of transformers' own, they differ by more than rounding.
    """
    implementation = str(subject.hf.config._attn_implementation)
    promise = f"attention_probabilities mix the values into the head outputs of {implementation}, up to rounding"
    cases = 0
    for layer in range(subject.sizes["num_layers"]):
        names = ("attention_head_outputs", "attention_probabilities", "attention_scores", "attention_values")
        paths = [str(ValuePath(name, layer)) for name in names]
        if not all(path in eager.values for path in paths):
            continue
        found, expected = eager.values[paths[0]], kernel.values[paths[0]]
        scores, mixed = eager.values[paths[2]], kernel.values[paths[3]]
        counted = scores[scores.isfinite() & (scores > torch.finfo(torch.float32).min / 2)]
        largest = counted.abs().max().item() if counted.numel() else 0.0
        product = _PRODUCTS[torch.get_float32_matmul_precision()]
        share = _ROUNDINGS * (torch.finfo(found.dtype).eps + product * (1 + largest))
        bound = share * mixed.abs().max().item()
        difference = (found.double() - expected.double()).abs().nan_to_num(0.0).max().item()
        if difference > bound:
            why = (
                f"the head outputs of layer {layer} differ by {difference:.1e} from those that eager attention has for "
                f"the same stream, where {bound:.1e} would be rounding"
            )
            if _is_transformers_own(implementation):
                raise CheckError(f"`{paths[1]}` is not the pattern of {implementation} attention: {why}.")
            return Untested(promise, f"{why}; scores and pattern are eager attention's")
        cases += 1
    return CheckResult(promise, cases)


def _is_transformers_own(implementation: str) -> bool:
    from transformers import AttentionInterface

    function = AttentionInterface._global_mapping.get(implementation)
    return getattr(function, "__module__", "").startswith("transformers.")
