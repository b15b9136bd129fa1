"""Functions applied to values: for as long as a block lasts, or in every pass of an edited model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor, nn

from cutaway.edits.function_edit import FunctionEdit, ValueFunction
from cutaway.edits.positions import (
    a_row_each,
    positions_so_far,
    prompt_mask,
    put_at,
    selected,
    token_axis,
)
from cutaway.errors import CutawayError
from cutaway.sites.slots import Call, map_tensors
from cutaway.subject.subject import Subject
from cutaway.tracing import Attachment, attach
from cutaway.tracing.attach import Answers


class Tokens(NamedTuple):
    """Of a pass under way, every token's position, `[batch total]`, and the rows' prompt lengths, `[batch]`."""

    where: Tensor
    prompts: Tensor


class Application:
    """Function edits, attached to a running model.

    The functions are called in every pass for which `answers()` is true, in the order in which they were given. Passes
    may take turns, each in its greenlet.
    """

    def __init__(
        self, subject: Subject, edits: Sequence[FunctionEdit], answers: Answers, root: nn.Module | None = None
    ) -> None:
        self.calls = 0
        self.silent = {edit.address.path for edit in edits}
        self._subject = subject
        self._sizes = subject.sizes
        self._under_way: WeakKeyDictionary[greenlet, Tokens] = WeakKeyDictionary()
        self._attachments: list[Attachment] = []
        try:
            self._attachments.append(attach(root or subject.hf, "enter", self._begin, answers))
            for edit in edits:
                address = edit.address
                self._attachments.append(attach(address.module, address.moment, self._callback(edit), answers))
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Takes off what was attached."""
        for attachment in self._attachments:
            attachment.remove()
        self._attachments.clear()

    def _begin(self, call: Call) -> None:
        self.calls += 1
        known = prompt_mask.get()
        where = positions_so_far(call, known)
        before = self._under_way.get(getcurrent())
        if known is not None:
            prompts = a_row_each((known != 0).sum(dim=1), len(where))
        elif before is None or where.shape[1] == _own_tokens(call):
            prompts = (where >= 0).sum(dim=1)
        else:
            prompts = before.prompts
        self._under_way[getcurrent()] = Tokens(where, prompts)

    def _callback(self, edit: FunctionEdit) -> Callable[[Any], Any]:
        address, function = edit.address, edit.function

        def callback(passing: Any) -> Any:
            self.silent.discard(address.path)
            old = address.slot.read(passing, self._sizes)
            if old is None:
                return None
            given = map_tensors(torch.clone, old) if _must_be_copied(edit) else old
            returned = function(given)
            new = given if returned is None else returned
            if new is old:
                return None
            new = address.fit(old, new, move=self._subject.over_devices)
            if edit.positions is not None:
                new = self._at_positions(edit, old, new)
            return address.slot.write(passing, new)

        return callback

    def _at_positions(self, edit: FunctionEdit, old: Tensor, new: Tensor) -> Tensor:
        tokens = self._under_way[getcurrent()]
        assert edit.address.value is not None
        axis = token_axis(edit.address.value)
        assert axis is not None
        return put_at(old, new, axis, selected(edit.positions, tokens.where, tokens.prompts))


def _must_be_copied(edit: FunctionEdit) -> bool:
    """Whether a function that writes in place would write into what is not this value's alone.

    Autograd may keep what passes for the way back. What enters attention may be the cache's own tensor: the edit would
    add up step by step. A module's argument may be that of others too, as the normed stream is of three projections.
    """
    address = edit.address
    return (
        edit.positions is not None or address.moment == "arguments" or address.value is None or torch.is_grad_enabled()
    )


def _own_tokens(call: Call) -> int:
    tokens = call.kwargs.get("input_ids", call.args[0] if call.args else None)
    return (tokens if tokens is not None else call.kwargs["inputs_embeds"]).shape[1]


class FunctionHooks:
    """Applies functions to values in every call of the model that the opening thread makes, inside traces too."""

    def __init__(self, subject: Subject, edits: Sequence[FunctionEdit], *, must_be_called: bool = True) -> None:
        self._subject = subject
        self._edits = edits
        self._must_be_called = must_be_called
        self._application: Application | None = None

    def __enter__(self) -> Self:
        self._subject.bring_weights()
        thread = threading.get_ident()
        self._application = Application(self._subject, self._edits, lambda: threading.get_ident() == thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        applied, self._application = self._application, None
        assert applied is not None
        applied.remove()
        if error is None and self._must_be_called and applied.calls and applied.silent:
            raise CutawayError(
                f"the model ran, and the function given for {', '.join(sorted(applied.silent))} was never called. "
                "Either every pass was left before it, because nothing further was asked, or the model does not come "
                "by there."
            )


def adds(vector: Tensor, factor: float) -> ValueFunction:
    """A function that adds `factor * vector` to a value, in the value's own dtype and on its device."""

    def add(value: Tensor) -> Tensor:
        return value + (factor * vector.to(value.device, torch.promote_types(vector.dtype, value.dtype))).to(
            value.dtype
        )

    return add
