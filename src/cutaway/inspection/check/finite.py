"""What to say of a model whose logits are not finite: where that begins, and what would help under this load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cutaway.inspection.check.places import result_word
from cutaway.subject.subject import Subject


def tell_not_finite(subject: Subject, values: Mapping[str, Any]) -> str:
    """A message that names the first value that is not finite, its cause as far as it shows, and the remedy.

    Args:
        values: those of a pass under the load's own attention.
    """
    dtype = str(subject.hf.dtype).removeprefix("torch.")
    implementation = subject.hf.config._attn_implementation
    word = result_word(subject)
    first = next((name for name in _in_order(subject, values) if not _finite(name, values[name])), word)
    return (
        f"the {word} of {subject.name} are not finite in {dtype} under {implementation} attention; the first value "
        f"that is not is `{first}`. {_cause(subject, first)}"
    )


def _in_order(subject: Subject, values: Mapping[str, Any]) -> list[str]:
    names = [str(path) for path in subject.value_paths if not path.value.derived]
    return [name for name in names if isinstance(values.get(name), Tensor)]


def _finite(name: str, value: Tensor) -> bool:
    """Masked scores are minus infinity under some masks."""
    bad = value.isnan() | (value == float("inf")) if name.endswith("attention_scores") else ~value.isfinite()
    return not bool(bad.any())


def _cause(subject: Subject, first: str) -> str:
    for name, parameter in subject.hf.named_parameters():
        bad = 0 if parameter.is_meta else int((~parameter.isfinite()).sum())
        if bad:
            return (
                f"Its weights are not: {bad} of the {parameter.numel()} entries of `{name}`. No other way of loading "
                "helps: mend that weight, or get the checkpoint again."
            )
    dtype = subject.hf.dtype
    inside = first.endswith(("attention_scores", "attention_probabilities", "attention_head_outputs"))
    if dtype == torch.float16 and inside and subject.hf.config._attn_implementation == "eager":
        return (
            "Its weights are, and float16 ends at 65504: eager attention multiplies before it scales. Load it with "
            "attn_implementation='sdpa' or dtype=torch.bfloat16."
        )
    ends = (
        f"Its weights are: a value passes what {str(dtype).removeprefix('torch.')} holds, {torch.finfo(dtype).max:.3g}."
    )
    if dtype == torch.float16:
        return f"{ends} Load it with dtype=torch.bfloat16 or dtype=torch.float32, which end at 3.4e+38."
    if dtype == torch.float64:
        return f"{ends} No dtype holds more."
    return f"{ends} float64 holds it, where the model's own code does not go through float32 on the way."
