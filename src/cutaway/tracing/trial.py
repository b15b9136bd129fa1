"""A pass of a model to look at: of its twin on the meta device, or where that cannot be, of the model itself.

The survey and the finding of a family look at the same pass. Models want different things of a call: most take a mask
of four axes as it is, and would look at the numbers of one of two axes; some want that one, some want none; some heads
take one row at a time. A model whose layers want real numbers runs itself, a few tokens, and is left as it was.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cutaway.tracing.compiled import AsWritten
from cutaway.tracing.packed import left_unpacked
from cutaway.tracing.twin import meta_twin

BATCH, SEQ = 3, 7
"""The size of the call; no model has axes of these lengths, so that a mixed-up axis shows."""

Mask = Literal["each query's", "padding", "none"]
"""Which mask a call is given: `[batch 1 query key]`, `[batch seq]`, or none."""

T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """How a model is called to be looked at.

    Attributes:
        of_twin: whether its twin runs, and not the model itself.
        rows: how many rows are run.
        mask: which mask it is given.
    """

    of_twin: bool = True
    rows: int = BATCH
    mask: Mask = "each query's"

    def inputs(self, batch: int, seq: int, device: Any) -> dict[str, Tensor]:
        """The arguments of the call, on the meta device for a twin."""
        device = "meta" if self.of_twin else device
        ids = (torch.arange(batch * seq).reshape(batch, seq) % 5 + 1).to(device)
        if self.mask == "none":
            return {"input_ids": ids}
        shape = (batch, 1, seq, seq) if self.mask == "each query's" else (batch, seq)
        of = torch.bool if self.mask == "each query's" else torch.long
        return {"input_ids": ids, "attention_mask": torch.ones(shape, dtype=of, device=device)}

    @contextlib.contextmanager
    def open(self, hf: PreTrainedModel, device: Any) -> Generator[tuple[PreTrainedModel, Callable[[], Any]]]:
        """What runs, and a function that runs a pass of it.

        Args:
            hf: the model.
            device: where it takes its ids.
        """
        inputs = self.inputs(self.rows, SEQ, device)
        if self.of_twin:
            twin = runnable_twin(hf)
            with torch.no_grad():
                yield twin, partial(twin, **inputs, use_cache=False)
            return
        with left_as_it_was(hf), torch.no_grad():
            yield hf, partial(hf, **inputs, use_cache=False)


def first_that_runs(
    hf: PreTrainedModel, has_weights: bool, device: Any, look: Callable[[PreTrainedModel, Callable[[], Any], Trial], T]
) -> T:
    """What looking at the first pass gives that can be run.

    Args:
        hf: the model.
        has_weights: whether it can run itself.
        device: where it takes its ids.
        look: is given what runs, a function that runs a pass of it, and how it is called.

    Raises:
        Exception: what the first of all passes raised, where none can be run.
    """
    failure: Exception | None = None
    for trial in _trials(has_weights):
        try:
            with trial.open(hf, device) as (model, run):
                return look(model, run, trial)
        except Exception as error:  # whatever a model raises that wants something else
            failure = failure or error
    assert failure is not None
    raise failure


def _trials(has_weights: bool) -> Iterator[Trial]:
    for of_twin in (True, False) if has_weights else (True,):
        for rows in (BATCH, 1):
            masks: tuple[Mask, ...] = ("each query's", "padding", "none") if of_twin else ("padding", "none")
            yield from (Trial(of_twin, rows, mask) for mask in masks)


def runnable_twin(hf: PreTrainedModel) -> PreTrainedModel:
    """A model's twin whose experts are computed as batched products, which run on any device and in any dtype."""
    twin = meta_twin(hf)
    can_set: Any = getattr(type(twin), "_can_set_experts_implementation", None)
    if can_set is not None and can_set():
        twin.set_experts_implementation("batched_mm")
    return twin


@contextlib.contextmanager
def left_as_it_was(hf: nn.Module) -> Generator[None]:
    """A model that runs in here has the random numbers, buffers, 4-bit weights and mode of before when it is left."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in hf.buffers() if not buffer.is_meta]
    on = {buffer.device for buffer, _ in buffers} | {parameter.device for parameter in hf.parameters()}
    accelerators = [device for device in on if device.type == "cuda"]
    written = AsWritten(hf)
    try:
        try:
            written.put_on()
            with torch.random.fork_rng(devices=accelerators), warnings.catch_warnings(), left_unpacked(hf):
                warnings.simplefilter("ignore")
                yield
        finally:
            written.remove()
    except BaseException:
        written.remove()  # once more, where an interrupt has cut it short
        raise
    finally:
        for buffer, was in buffers:
            if not torch.equal(buffer, was):
                buffer.copy_(was)
