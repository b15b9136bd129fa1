"""Functions applied to values, for as long as a block lasts: `with model.hooks({path: function}):`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.model.address import Address
from cutaway.model.subject import Subject
from cutaway.tracing import Attachment, attach

ValueFunction = Callable[[Tensor], Tensor | None]
"""Given a value; edits it in place, or returns what is to stand in its place, or returns None and leaves it."""


class FunctionHooks:
    """Applies functions to values in every call of the model that the opening thread makes, inside traces too."""

    def __init__(self, subject: Subject, functions: Mapping[Address, ValueFunction]) -> None:
        for address in functions:
            address.refuse_unless_writable()
        self._subject = subject
        self._functions = functions
        self._attachments: list[Attachment] = []
        self._silent: set[str] = set()
        self._calls = 0
        self._thread = 0

    def __enter__(self) -> Self:
        self._subject.bring_weights()
        self._thread = threading.get_ident()
        self._silent = {address.path for address in self._functions}
        self._calls = 0
        try:
            self._attachments.append(attach(self._subject.hf, "enter", self._count, self._answers))
            for address, function in self._functions.items():
                callback = self._callback(address, function)
                self._attachments.append(attach(address.module, address.moment, callback, self._answers))
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()
        if error is None and self._calls and self._silent:
            raise CutawayError(
                f"the model ran, and the function given for {', '.join(sorted(self._silent))} was never called. Either every pass was "
                "left before it, because nothing further was asked, or the model does not come by there."
            )

    def _answers(self) -> bool:
        return threading.get_ident() == self._thread

    def _count(self, passing: Any) -> None:
        self._calls += 1

    def _callback(self, address: Address, function: ValueFunction) -> Callable[[Any], Any]:
        sizes = self._subject.sizes

        def callback(passing: Any) -> Any:
            self._silent.discard(address.path)
            old = address.slot.read(passing, sizes)
            new = function(old)
            if new is None or new is old:
                return None
            address.check_replacement(old, new)
            return address.slot.write(passing, new)

        return callback

    def _remove(self) -> None:
        for attachment in self._attachments:
            attachment.remove()
        self._attachments.clear()
