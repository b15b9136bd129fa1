"""What a sweep does not compute again: one row's pass without the edit.

An edit at a layer and a position changes nothing in the blocks below, and in a causal model nothing at the positions
before it. So the stream that enters each block is kept, and the keys and values of every position: rows that are
edited enter at their block with the stream kept, and run from the first position that is edited on.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from cutaway.edits.reach import any_in_force
from cutaway.errors import InputError
from cutaway.model import StandardizedTransformer
from cutaway.passes.callers import CACHE_ARGUMENTS
from cutaway.passes.trace import Trace
from cutaway.subject.inputs import Prompt

_ROUNDINGS = 256
"""By how many units of rounding, of the largest logit, two ways to run the same may differ."""


class Unedited:
    """One row's pass, kept.

    Attributes:
        ids: `[1 seq]`.
        streams: what enters each block, `[1 seq hidden_size]`, and last what leaves the last one.
        goes_on: for each block, whether what leaves it is what enters the next.
        why_whole: why positions before an edit are run again; empty where they are not.
    """

    def __init__(self, model: StandardizedTransformer, prompt: Prompt, what: str = "the prompt") -> None:
        self._model = model
        forward = inspect.signature(model.hf.forward).parameters
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in forward else {}
        self._takes = next((name for name in CACHE_ARGUMENTS if name in forward), "")
        self.why_whole = self._why_no_cache()
        cache: Any = None if self.why_whole else DynamicCache()
        names = ("input_ids", "layers.*.layer_input", "layers.*.layer_output", "logits")
        found = model.read(prompt, *names, **self._last, **self._given(cache))
        self.ids = found.pop("input_ids")
        if len(self.ids) != 1:
            raise InputError(f"{what} has {len(self.ids)} rows; a sweep takes one prompt of each kind.")
        logits = found.pop("logits")[:, -1]
        entering, leaving = (
            [stream for path, stream in found.items() if path.endswith(name)] for name in ("input", "output")
        )
        self.streams: list[Tensor] = [*entering, leaving[-1]]
        self.goes_on = [torch.equal(one, other) for one, other in zip(leaving, self.streams[1:], strict=True)]
        self._kept: list[tuple[Tensor, Tensor]] = (
            [] if cache is None else [(layer.keys, layer.values) for layer in cache.layers]
        )
        if not self.why_whole:
            self.why_whole = self._why_not_gone_on_with(logits)

    @property
    def length(self) -> int:
        """How many tokens the row has."""
        return self.ids.shape[1]

    def stream(self, layer: int, start: int, rows: int) -> Tensor:
        """What enters a block in a pass of as many copies of the row, from a position on: a tensor of its own."""
        return self.streams[layer][:, self._from(start) :].repeat(rows, 1, 1)

    @contextmanager
    def entered(self, layer: int, start: int, rows: int, stream: Tensor | None = None) -> Generator[Trace]:
        """A pass of as many copies of the row, from a position on, that waits at a block, with a stream entering there.

        Args:
            layer: the block's number, or one past the last block's.
            start: the first position that is run.
            rows: how many copies.
            stream: what enters, as `stream` gives it; by default that.
        """
        model, start = self._model, self._from(start)
        ids = self.ids[:, start:].expand(rows, -1)
        with model.trace(ids, **self._last, **self._given(self._up_to(start, rows))) as run:
            for below in range(layer):
                model.layers[below].skip()
            if layer:
                entering = self.stream(layer, start, rows) if stream is None else stream
                if layer < model.num_layers:
                    model.layers[layer].layer_input = entering
                else:
                    model.layers[-1].layer_output = entering
            elif stream is not None:
                model.layers[0].layer_input = stream
            yield run

    def _from(self, start: int) -> int:
        return 0 if self.why_whole else start

    def _given(self, cache: Any) -> dict[str, Any]:
        return {} if cache is None else {self._takes: cache}

    def _up_to(self, start: int, rows: int) -> Any:
        """A cache of the positions before `start`, for as many rows; none where there are none."""
        if not start:
            return None
        cache = DynamicCache()
        for layer, kept in enumerate(self._kept):
            keys, values = (tensor[:, :, :start].expand(rows, -1, -1, -1) for tensor in kept)
            cache.update(keys, values, layer)
        return cache

    def _why_no_cache(self) -> str:
        subject = self._model._subject
        if self._model._edits or any_in_force():
            return "edits are in force, which may count positions by their place in what is run."
        if not self._takes:
            return f"the forward of {type(subject.hf).__name__} takes no cache."
        if any("mixer" in subject.family_at(layer).modules for layer in range(self._model.num_layers)):
            return "layers carry a state, which is kept for the last position alone."
        return ""

    def _why_not_gone_on_with(self, logits: Tensor) -> str:
        """Puts to the test whether the second half of the row, with the first in a cache, gives what the whole gave."""
        if self.length < 2:
            return "there is one position."
        with self.entered(0, self.length // 2, 1):
            found = self._model.logits[:, -1]
        bound = _ROUNDINGS * torch.finfo(logits.dtype).eps * float(logits.abs().max())
        off = float((found - logits).abs().max())
        return "" if off <= bound else f"with a cache the logits are other ones, by up to {off:.1e}."
