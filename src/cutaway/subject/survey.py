"""The survey: one pass of the model's twin on the meta device, noting what it comes by.

It answers, for this model under this load and not from a hand-kept list, which values exist, with which shape, and in
which order a pass reaches them. It needs no weights and no compute, so it is the same for a checkpoint of 2.7 billion
parameters that was never downloaded. Where a twin cannot run, as with layers whose kernels want real numbers, the model
itself runs a few tokens, and is left as it was.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from transformers import PreTrainedModel

from cutaway.sites import Moment, OperationMoment
from cutaway.sites.slots import Call
from cutaway.subject.places import INSIDE, Places
from cutaway.tracing import AsWritten, Attachment, attach, meta_twin, remove_all
from cutaway.tracing.occurrences import Whereabouts, paths_of
from cutaway.tracing.torch_state import no_settings

BATCH, SEQ = 3, 7
"""The size of the surveyed call; no model has axes of these lengths, so that a mixed-up axis shows."""

Key = tuple[str, Moment | OperationMoment]
"""A moment: the module's own path, and its kind."""


@dataclass(frozen=True)
class Survey:
    """What a pass came by.

    Attributes:
        order: each moment, with its rank in the pass.
        passing: the shapes of what passed there: a tensor on the meta device, or a container of them.
        repeated: the paths of modules that a pass calls more often than they stand in the model.
        callers: the paths of the modules that call a module that stands in several places.
        of_twin: whether the twin ran, and not the model itself.
        rows: how many rows were run.
        failure: why no pass could be run at all; empty where one was.
    """

    order: Mapping[Key, int] = field(default_factory=dict[Key, int])
    passing: Mapping[Key, Any] = field(default_factory=dict[Key, Any])
    repeated: frozenset[str] = frozenset()
    callers: frozenset[str] = frozenset()
    of_twin: bool = True
    rows: int = BATCH
    failure: str = ""


@no_settings()
def survey(hf: PreTrainedModel, places: Places, streams: Sequence[str], has_weights: bool, device: Any) -> Survey:
    """Runs a model's twin once, or where that cannot be, the model, with everything attached that can be.

    Args:
        hf: the model.
        places: where its modules stand.
        streams: the standard names of a layer's modules that the stream enters and also passes by.
        has_weights: whether the model itself can run.
        device: where the model takes its ids.
    """
    beside = {places.module("layer", i, name) for i in range(places.num_layers) for name in streams}
    attentions = {places.interior(places.host("attention", i)) for i in range(places.num_layers)}
    moments = partial(_moments, beside=beside, attentions=attentions, places=places)
    failures: list[str] = []
    for of_twin in (True, False) if has_weights else (True,):
        for rows in (BATCH, 1):  # some heads take one row at a time
            try:
                with a_pass_of(hf, Survey(of_twin=of_twin, rows=rows), device) as (model, run):
                    return replace(_follow(model, moments, run, of_twin), rows=rows)
            except Exception as error:
                failures.append(f"{type(error).__name__}: {error}")
    return Survey(failure=failures[-1].strip().split("\n")[0])


@contextlib.contextmanager
def a_pass_of(hf: PreTrainedModel, like: Survey, device: Any) -> Generator[tuple[nn.Module, Callable[[], Any]]]:
    """A model, the twin or this one itself, and a function that runs a pass of it, both as a survey had them."""
    if like.of_twin:
        twin = meta_twin(hf)
        with torch.no_grad():
            yield twin, partial(twin, **meta_inputs(like.rows, SEQ), use_cache=False)
        return
    ids = torch.zeros(like.rows, SEQ, dtype=torch.long, device=device)
    with left_as_it_was(hf), torch.no_grad():
        yield hf, partial(hf, input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)


def _moments(path: str, *, beside: set[str], attentions: set[str], places: Places) -> tuple[Moment, ...]:
    if path in attentions and not places.lacks_interior(path):
        return ("enter", *INSIDE, "exit")
    return ("stream", "enter", "exit") if path in beside else ("enter", "exit")


def _follow(
    model: nn.Module, moments: Callable[[str], tuple[Moment, ...]], run: Callable[[], Any], of_twin: bool
) -> Survey:
    """Makes a call with everything attached."""
    paths = paths_of(model)
    here = Whereabouts(paths)
    order: dict[Key, int] = {}
    passing: dict[Key, Any] = {}
    repeated: set[str] = set()
    callers: set[str] = set()

    def enter(module: nn.Module, _call: Any) -> None:
        caller = here.path
        if not here.enter(module):
            repeated.add(here.last(module))
        if len(paths[module]) > 1:
            callers.add(caller)

    def leave(module: nn.Module, _output: Any) -> None:
        here.leave(module)

    def note(module: nn.Module, moment: Moment, what: Any) -> None:
        key = (here.last(module), moment)
        order.setdefault(key, len(order))
        passing.setdefault(key, what if of_twin else _shapes(what))

    noted: list[Attachment] = []
    try:
        try:
            for module, own in paths.items():
                attach(module, "enter", partial(enter, module), _always, noted)
                wanted: dict[Moment, None] = dict.fromkeys(moment for path in own for moment in moments(path))
                for moment in wanted:
                    attach(module, moment, partial(note, module, moment), _always, noted)
                attach(module, "exit", partial(leave, module), _always, noted)
            run()
        finally:
            remove_all(noted)
    except BaseException:
        remove_all(noted)  # once more, where an interrupt has cut it short
        raise
    return Survey(order, passing, frozenset(repeated), frozenset(callers), of_twin)


@contextlib.contextmanager
def left_as_it_was(hf: PreTrainedModel) -> Generator[None]:
    """A model that runs in here has the random numbers, the buffers and the mode of before when it is left."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in hf.buffers() if not buffer.is_meta]
    on = {buffer.device for buffer, _ in buffers} | {parameter.device for parameter in hf.parameters()}
    accelerators = [device for device in on if device.type == "cuda"]
    written = AsWritten(hf)
    try:
        try:
            written.put_on()
            with torch.random.fork_rng(devices=accelerators), warnings.catch_warnings():
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


def meta_inputs(batch: int, seq: int) -> dict[str, Tensor]:
    """Inputs on the meta device. The mask is `[batch 1 query key]`: a model takes such a one as it is, where it would
    want to know what is in a `[batch seq]` one."""
    return {
        "input_ids": torch.zeros(batch, seq, dtype=torch.long, device="meta"),
        "attention_mask": torch.ones(batch, 1, seq, seq, dtype=torch.bool, device="meta"),
    }


def _shapes(what: Any) -> Any:
    """What passed in a real pass, as shapes on the meta device; what is neither tensor nor plain is left out."""
    if isinstance(what, Call):
        return Call(_shapes(what.args), _shapes(what.kwargs))

    def shape(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return torch.empty_like(leaf, device="meta")
        return leaf if isinstance(leaf, (int, float, str, bool)) else None

    return tree_map(shape, what)


def _always() -> bool:
    return True
