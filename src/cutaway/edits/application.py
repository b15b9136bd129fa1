"""Function edits attached to a running model, and what is told of those that never acted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor, nn

from cutaway.edits.computed_again import ComputedAgain
from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.positions import put_at, token_axis
from cutaway.edits.rows import ModelCall, Rows, under_way
from cutaway.edits.track import Track, chosen_places
from cutaway.errors import CutawayError, GradientError, IdleEditWarning
from cutaway.sites.slots import Call, map_tensors
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject
from cutaway.tracing import Attachment, attach, put_on, remove_all
from cutaway.tracing.attach import Answers
from cutaway.tracing.checkpointing import backward_under_way, remember
from cutaway.tracing.occurrences import both


class _Pass:
    """A call of the model in one greenlet; with `call` None it is over."""

    def __init__(self, call: ModelCall, before: Rows | None) -> None:
        self.call: ModelCall | None = call
        self.before = before
        self.rows: Rows | None = None


class Application:
    """Function edits, attached to a running model.

    The functions are called in every pass for which `answers()` is true, in the order in which they were given. Passes
    may take turns, each in its greenlet.

    Attributes:
        calls: how many calls of the model have begun.
        tracks: what became of each edit so far.
        again: what of them a checkpoint computes again.
    """

    def __init__(
        self, subject: Subject, edits: Sequence[FunctionEdit], answers: Answers, root: nn.Module | None = None
    ) -> None:
        self.calls = 0
        self.again = ComputedAgain(lambda: bool(self._attachments) and answers())
        self.tracks = [Track(edit) for edit in edits]
        self._subject = subject
        self._root = root or subject.hf
        self._at_some = any(edit.choice is not None for edit in edits)
        self._passes: WeakKeyDictionary[greenlet, _Pass] = WeakKeyDictionary()
        self._backwards: WeakKeyDictionary[greenlet, int] = WeakKeyDictionary()
        self._answers = answers
        self._attachments: list[Attachment] = []

    def put_on(self) -> None:
        """Attaches the edits; whoever calls this calls `remove` in any case."""
        noted = self._attachments
        put_on(self._subject.as_written(), noted)
        attach(self._root, "enter", self._begin, self._answers, noted)
        batch = self._subject.batch_note(self._answers, self._root)
        if batch is not None:
            put_on(batch, noted)
        occurrences = self._subject.occurrences(self._answers, self._root)
        if occurrences is not None:
            put_on(occurrences, noted)
        for track in self.tracks:
            address = track.edit.address
            remember((*address.within, address.module), self._answers, noted)
            at = occurrences.at(address.module, address.module_path) if occurrences is not None else None
            attach(address.module, address.moment, self._callback(track), both(self._answers, at), noted)
        if self._at_some:
            attach(self._root, "enter", self._begin_as_edited, self._answers, noted)
            attach(self._root, "exit", self._end, self._answers, noted)

    def remove(self) -> None:
        """Takes off what was attached; may be called again."""
        remove_all(self._attachments)

    def _begin(self, call: Call) -> None:
        self.calls += 1
        self._backwards[getcurrent()] = backward_under_way()
        if self._at_some:
            before = self._passes.get(getcurrent())
            self._passes[getcurrent()] = _Pass(ModelCall.of(call), before.rows or before.before if before else None)

    def _begin_as_edited(self, call: Call) -> None:
        """Notes a call again, whose mask the functions may have edited."""
        begun = self._passes[getcurrent()]
        begun.call, begun.rows = ModelCall.of(call), None

    def _end(self, _output: Any) -> None:
        if getcurrent() in self._passes:
            self._passes[getcurrent()].call = None

    def _callback(self, track: Track) -> Callable[[Any], Any]:
        edit = track.edit
        address, function = edit.address, edit.function

        def callback(passing: Any) -> Any:
            if backward_under_way() != -1:
                self._refuse_computing_again(address)
            old = address.read(passing)
            if old is None:
                track.absent += 1
                return None
            track.calls += 1
            given = map_tensors(torch.clone, old) if _must_be_copied(edit) else old
            returned = function(given)
            new = given if returned is None else returned
            if new is old and not address.overwritten:
                return None
            new = address.fit(old, new, move=self._subject.over_devices)
            if edit.choice is not None:
                new = self._at_positions(track, old, new)
            if address.overwritten:
                new = map_tensors(torch.clone, new)  # the model writes into what flows on, and not into what was given
            return address.write(passing, self.again.mark(address, new))

        return callback

    def _refuse_computing_again(self, address: Address) -> None:
        """Raises where a backward pass computes a part of a forward again that was not edited at first."""
        if self._backwards.get(getcurrent()) != backward_under_way():
            raise GradientError(
                f"a backward pass computes `{address.path}` again, as gradient checkpointing does, and the forward "
                "was not edited there. Go back through it outside of the block that edits, and switch checkpointing "
                "on before it."
            )

    def _at_positions(self, track: Track, old: Tensor, new: Tensor) -> Tensor:
        value = track.edit.address.value
        assert value is not None
        axis = token_axis(value)
        assert axis is not None
        rows = self._rows(track.edit)
        chosen = chosen_places(track.edit, rows, old.shape[axis])
        track.note(rows, chosen)
        return put_at(old, new, axis, chosen)

    def _rows(self, edit: FunctionEdit) -> Rows:
        """The rows of the pass under way.

        Raises:
            CutawayError: it is not a call of the whole model, so that they are not known.
        """
        begun = self._passes.get(getcurrent())
        if begun is None or begun.call is None:
            opened = under_way.get()
            if opened is None or opened.call is None:
                raise CutawayError(
                    f"`{edit.address.path}` is edited at positions, and positions are known of a call of the whole "
                    "model. This pass is none: a part of the model was called, or it had begun when the edit was "
                    "opened. Call the model itself inside the block."
                )
            begun = self._passes[getcurrent()] = _Pass(opened.call, begun.rows if begun else None)
        if begun.rows is None:
            assert begun.call is not None
            begun.rows = Rows.of(begun.call, self._root, begun.before)
        return begun.rows

    def warn_of_idle(self, *, to_the_end: bool) -> None:
        """Warns of edits that did not act in a pass of an edited model, as far as it went.

        Warns:
            IdleEditWarning: a function was called, and none of its positions came; or the pass ran to its end, and did
                not come by.
        """
        for track in self.tracks:
            idle = not track.acted if track.calls else to_the_end
            if idle:
                why = track.why_not() if track.calls else "was never called: the pass did not come by"
                warnings.warn(
                    f"the edited model's function for {track.edit.address.path} {why}.",
                    IdleEditWarning,
                    stacklevel=_OUTSIDE,
                )


def _must_be_copied(edit: FunctionEdit) -> bool:
    """Whether a function that writes in place would write into what is not this value's alone.

    Autograd may keep what passes for the way back. What enters attention may be the cache's own tensor: the edit would
    add up step by step. A module's argument may be that of others too, as the normed stream is of three projections.
    """
    address = edit.address
    return edit.choice is not None or address.shared or address.value is None or torch.is_grad_enabled()


_OUTSIDE = 4
"""How far up from a warning the line stands that ran the pass."""
