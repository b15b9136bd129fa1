"""Gradients in a trace: ordinary autograd, with every value that is handed out part of the graph.

A value as the pass has it may be a view that nothing downstream reads, a leaf that must not be edited in place, or a
tensor that autograd keeps for the way back. With gradients asked for, what is handed out is therefore a copy that
flows on in the original's place, and keeps its `.grad`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutaway.errors import GradientError
from cutaway.subject.subject import Subject
from cutaway.tracing import ForwardPass
from cutaway.vocabulary import ValuePath


def refuse_without_autograd() -> None:
    """Raises where torch has been told to record no gradients.

    Raises:
        GradientError: under `torch.no_grad()` or `torch.inference_mode()`.
    """
    if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
        mode = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
        raise GradientError(
            f"grad=True was asked for under {mode}, which records no gradients. Open the trace outside."
        )


def refuse_without_record(running: ForwardPass, path: str) -> None:
    """Raises where the model itself has switched gradients off in the part of the pass where it waits.

    Raises:
        GradientError: naming the value and the usual cause.
    """
    if not running.records:
        raise GradientError(
            f"the model records no gradients where `{path}` is computed, as under reentrant gradient checkpointing. "
            "Choose the other kind: activation_checkpointing_enable({'use_reentrant': False})."
        )


def start_graph(subject: Subject, running: ForwardPass) -> None:
    """Has the graph begin at the token embeddings where all parameters are frozen; no parameter's flag is touched."""
    address = subject.address(ValuePath("token_embeddings", None))

    def require(passing: Any) -> Any:
        embeddings = address.slot.read(passing, subject.sizes)
        if embeddings.requires_grad:
            return None
        return address.slot.write(passing, embeddings.detach().requires_grad_())

    running.attach(address.module, address.moment, require)


def own_in_graph(value: Tensor) -> Tensor:
    """A copy in the graph that keeps its `.grad`."""
    own = value.clone()
    if own.requires_grad:
        own.retain_grad()
    return own


def is_own(value: Tensor) -> bool:
    """Whether a tensor was handed out before, under another name."""
    return "save" in value.__dict__


def explain_missing_graph(error: BaseException | None) -> None:
    """Raises in the place of torch's error about a missing graph, in a trace that was opened without gradients.

    Raises:
        GradientError: saying how to ask for gradients.
    """
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_GRAPH):
        raise GradientError(
            "this trace records no gradients. Open it with grad=True: `model.trace(prompt, grad=True)`."
        ) from error


_NO_GRAPH = ("does not require grad", "requires_grad=False")
"""torch's words for a missing graph."""
