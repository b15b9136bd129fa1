"""Gradients in a trace: ordinary autograd, with every value that is handed out a node of its own in the graph.

The gradient of a value is that of its own place: what comes back through whatever reads it there, which is what an edit
of it reaches. `mlp_input` has the MLP's path alone, `q_proj.input` the queries', `layer_input` all of the block's, the
stream that passes by included; on Phi `attention_norm_output` and `mlp_norm_output` are one place, the norm's output,
and have the attention's path and the MLP's. It is the same whatever else was read or edited in the trace. Of a value
that was edited it is the gradient of what flows on.

A value as the pass has it may be the tensor of several places, a view that nothing downstream reads, a leaf that must
not be edited in place, or a tensor that autograd keeps for the way back. With gradients asked for, what is handed out
is therefore a copy that flows on in the original's place, and keeps its `.grad`.

transformers' gradient checkpointing is passed over in such a trace, so its gradients are those of the model without it;
so is its memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutaway.errors import GradientError
from cutaway.sites.slots import map_tensors
from cutaway.subject.subject import Subject
from cutaway.tracing import ForwardPass
from cutaway.tracing.checkpointing import checkpoint_around
from cutaway.tracing.packed import packed
from cutaway.vocabulary import ValuePath


def refuse_without_autograd(subject: Subject) -> None:
    """Raises where torch has been told to record no gradients, or has none through a model's weights.

    Raises:
        GradientError: under `torch.no_grad()` or `torch.inference_mode()`, or bitsandbytes has packed weights.
    """
    if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
        mode = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
        raise GradientError(
            f"grad=True was asked for under {mode}, which records no gradients. Open the trace outside."
        )
    path = packed(subject.hf)
    if path:
        raise GradientError(
            f"bitsandbytes packed the 4-bit weights of `{path}` for the CPU, in a pass that recorded no gradients, and "
            "gradients through them would be wrong from then on. Load the model again, and open its first trace with "
            "grad=True."
        )


def refuse_without_record(running: ForwardPass, path: str, around: Any) -> None:
    """Raises where the part of the pass in which it waits is not recorded, or is computed again by backward.

    transformers' own gradient checkpointing is passed over in a trace with gradients. `around` tells the checkpoint, if
    any, in which the whole trace is.

    Raises:
        GradientError: naming the value and what to do.
    """
    if not running.records:
        raise GradientError(
            f"the model records no gradients where `{path}` is computed: something in it runs under torch.no_grad() or "
            "in a reentrant checkpoint of its own. Ask for what enters or leaves that part."
        )
    if checkpoint_around() is not around:
        raise GradientError(
            f"`{path}` is computed inside torch.utils.checkpoint, which computes it again on the way back, when the "
            "trace's reads and edits are gone, so its gradients would be wrong. Switch this checkpoint off while you "
            "trace, or ask for what enters or leaves it."
        )


def start_graph(subject: Subject, running: ForwardPass) -> None:
    """Has the graph begin at the token embeddings where all parameters are frozen; no parameter's flag is touched.

    In a call that is given embeddings in the place of ids it begins where they enter the first block. Of a derived
    family that does not claim one of the two, since its shape is another say, it is what the module returns or takes.
    """

    def begin_at(path: ValuePath, module: str, name: str) -> None:
        claimed = subject.is_available(path)
        address = subject.address(path) if claimed else subject.native_address(module, module, name)

        def require(passing: Any) -> Any:
            value = address.read(passing)
            is_in = not isinstance(value, Tensor) or value.requires_grad
            return None if is_in else address.write(passing, in_graph(value))

        running.attach(address.module, address.moment, require)

    begin_at(ValuePath("token_embeddings", None), subject.module_path("model", None, "embed_tokens"), "output")
    begin_at(ValuePath("layer_input", 0), subject.host_path("layer", 0), "input")


def in_graph(value: Any) -> Any:
    """A value with every floating tensor in it required to have a gradient; one that has none yet begins the graph."""

    def require(tensor: Tensor) -> Tensor:
        return tensor if tensor.requires_grad or not tensor.is_floating_point() else tensor.detach().requires_grad_()

    return map_tensors(require, value)


def own_in_graph(value: Tensor) -> Tensor:
    """A copy in the graph that keeps its `.grad`."""
    own = value.clone()
    if own.requires_grad:
        own.retain_grad()
    return own


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
