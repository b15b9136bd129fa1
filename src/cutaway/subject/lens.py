"""Reading a residual stream as the head reads it."""

from __future__ import annotations

from torch import Tensor

from cutaway.errors import ShapeError, UnavailableValueError
from cutaway.subject.subject import Subject


def project_on_vocab(subject: Subject, stream: Tensor) -> Tensor:
    """The final norm, with its own statistics, weight and bias, and the head with its bias.

    Raises:
        ShapeError: the last axis is not the stream's.
        UnavailableValueError: the model has no language-model head.
    """
    if "lm_head" not in subject.family.modules["model"]:
        raise UnavailableValueError(f"there is nothing to project with. {subject.why_unavailable('logits')}")
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
    return head(normed)
