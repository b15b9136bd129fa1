"""How many rows the batch of the call under way has.

A module that is called with a row for each token, a router say, does not know where one row of the batch ends. The call
of the whole model does, and it is noted there, for each greenlet its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import greenlet
from torch import Tensor, nn

from cutaway.errors import CutawayError
from cutaway.sites.slots import Call
from cutaway.tracing.hook import Hook

_batches: WeakKeyDictionary[greenlet.greenlet, int] = WeakKeyDictionary()


class BatchNote:
    """Notes the batch of each call of a model for which `answers()` is true, and forgets it at the call's end."""

    def __init__(self, model: nn.Module, answers: Callable[[], bool]) -> None:
        self._answers = answers
        self._hooks = (
            Hook(model, self._begin, at_entrance=True, first=True),
            Hook(model, self._end, at_entrance=False),
        )

    def put_on(self) -> None:
        """Puts it on."""
        for hook in self._hooks:
            hook.put_on()

    def remove(self) -> None:
        """Takes it off."""
        for hook in self._hooks:
            hook.remove()

    def _begin(self, _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if kwargs is not None and self._answers():
            batch = _batch(Call(args, kwargs))
            if batch is not None:
                _batches[greenlet.getcurrent()] = batch

    def _end(self, *_: Any) -> None:
        if self._answers():
            _batches.pop(greenlet.getcurrent(), None)


def batch_under_way(module: nn.Module) -> int:
    """How many rows the batch has.

    Raises:
        CutawayError: no call of the whole model is under way.
    """
    batch = _batches.get(greenlet.getcurrent())
    if batch is None:
        raise CutawayError(
            f"{type(module).__name__} is called with a row for each token, and how many rows the batch has is known of "
            "a call of the whole model. This is none: a part of the model was called. Call the model itself."
        )
    return batch


def _batch(call: Call) -> int | None:
    given = [call.kwargs.get("input_ids"), *call.args[:1], call.kwargs.get("inputs_embeds")]
    return next((len(tokens) for tokens in given if isinstance(tokens, Tensor)), None)
