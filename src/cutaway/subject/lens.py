"""Reading a residual stream as the head reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cutaway.errors import ShapeError, UnavailableValueError
from cutaway.subject.subject import Subject


def project_on_vocab(subject: Subject, stream: Tensor) -> Tensor:
    """The final norm, with its own statistics, weight and bias, the head with its bias, and what is made of that.

    Raises:
        ShapeError: the last axis is not the stream's.
        UnavailableValueError: the model has no language-model head, or reads its last stream otherwise.
    """
    if "lm_head" not in subject.family.modules["model"]:
        raise UnavailableValueError(f"there is nothing to project with. {subject.why_unavailable('logits')}")
    if subject.family.no_lens:
        raise UnavailableValueError(f"a stream cannot be projected on the vocabulary here: {subject.family.no_lens}")
    if stream.shape[-1] != subject.sizes["hidden_size"]:
        raise ShapeError(
            f"a stream's last axis is hidden_size, {subject.sizes['hidden_size']} here; it was given "
            f"{list(stream.shape)}."
        )
    subject.bring_weights()
    norm = subject.modules[subject.module_path("model", None, "norm")]
    head = subject.modules[subject.module_path("model", None, "lm_head")]
    normed, weight = norm(stream), getattr(head, "weight", None)
    if isinstance(weight, Tensor) and weight.is_floating_point() and normed.dtype != weight.dtype:
        normed = normed.to(weight.dtype)  # a stream in float32 over other weights; the model does so before its head
    logits = head(normed)
    config = subject.hf.config.get_text_config()
    for setting, change in PAST_HEAD.items():
        number = getattr(config, setting, None)
        if number is not None:
            logits = change(logits, number)
    surveyed = getattr(subject.survey.passing.get(("", "exit")), "logits", None)
    return logits.to(surveyed.dtype) if isinstance(surveyed, Tensor) else logits  # some are given in float32


PAST_HEAD: Mapping[str, Callable[[Tensor, float], Tensor]] = {
    "final_logit_softcapping": lambda logits, cap: torch.tanh(logits / cap) * cap,
    "logit_scale": lambda logits, scale: logits * scale,
    "lm_head_multiplier": lambda logits, scale: logits * scale,
    "logits_scaling": lambda logits, scaling: logits / scaling,
}
"""What models make of the head's product, by the setting of the config that says so. `check()` compares with logits."""
