"""Functions applied to values for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from cutaway.edits.application import Application
from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.reach import Reach
from cutaway.edits.told import edits_told
from cutaway.edits.track import Track
from cutaway.errors import CutawayError
from cutaway.subject.subject import Subject
from cutaway.tracing import Attachment, attach, remove_all
from cutaway.tracing.block import Block


class FunctionHooks(Block):
    """Applies functions to values in every call of the model in the context that opened the block, inside traces too.

    On leaving it is told if one of them never acted. With `may_be_left_out` it is no fault that the model was not run,
    or that no pass came by.
    """

    def __init__(self, subject: Subject, edits: Sequence[FunctionEdit], *, may_be_left_out: bool = False) -> None:
        self._subject = subject
        self._edits = edits
        self._may_be_left_out = may_be_left_out
        self._application: Application | None = None
        self._watches: list[Attachment] = []
        self._reach: Reach | None = None

    def _refuse_again(self) -> None:
        raise CutawayError("these edits are in force already. Make others for a block inside: `model.hooks({…})`.")

    def _enter(self) -> None:
        self._subject.bring_weights()
        self._reach = reach = Reach(self._subject.hf)
        self._application = Application(self._subject, self._edits, reach.holds)
        self._application.put_on()
        attach(
            self._subject.hf,
            "enter",
            lambda _call: reach.note_elsewhere(),
            lambda: not reach.holds(),
            self._watches,
        )
        reach.open()

    def _leave(self, error: BaseException | None) -> Callable[[], None] | None:
        applied, reach = self._application, self._reach
        assert applied is not None
        assert reach is not None
        crossing = reach.by_generator and reach.crossing()
        return partial(self._tell_of_all, applied, reach, crossing=crossing) if error is None else None

    def __repr__(self) -> str:
        applied = self._application
        if applied is None:
            standing = "not in force: `with …:` puts them in force, and leaving it takes them off"
        else:
            times = sum(track.calls for track in applied.tracks)
            standing = f"in force, called {times} time{'s' * (times != 1)} so far"
        what = edits_told(self._edits, self._subject.sizes["num_layers"])
        return f"<edits of {self._subject.name}: {what}; {standing}>"

    def _close(self) -> None:
        """Takes everything off the model; another call does what is left of it."""
        try:
            if self._reach is not None:
                self._reach.close()
            if self._application is not None:
                self._application.remove()
        finally:
            remove_all(self._watches)
        self._application = self._reach = None

    def _tell_of_all(self, applied: Application, reach: Reach, *, crossing: bool) -> None:
        """Raises where an edit did not do what it was opened for."""
        self._tell(applied, reach)
        applied.again.refuse_owed()
        if crossing and applied.calls:
            raise CutawayError(_TAKING_TURNS)

    def _tell(self, applied: Application, reach: Reach) -> None:
        """Raises where a function never acted, and says why.

        Raises:
            CutawayError: naming the edits.
        """
        never = [track for track in applied.tracks if not track.calls]
        if never and (reach.elsewhere or not self._may_be_left_out):
            whose = f"the function given for {_paths(never)} was never called."
            raise CutawayError(f"{whose} {_why(applied, never, reach)}")
        for track in applied.tracks:
            if track.calls and not track.acted:
                raise CutawayError(f"the function given for {track.edit.address.path} {track.why_not()}.")


def _why(applied: Application, never: Sequence[Track], reach: Reach) -> str:
    if reach.elsewhere and not applied.calls:
        return (
            f"The model ran in {', '.join(reach.elsewhere)} meanwhile, where it is not in force: an edit acts in the "
            "context that opened it. `asyncio.to_thread` and tasks started in the block have it; for a thread or an "
            "executor, carry it there: `Thread(target=contextvars.copy_context().run, args=(function, …))`."
        )
    if any(track.absent for track in never):
        return "The model was called without it."
    if applied.calls:
        return (
            "The model ran. Either every pass was left before it, because nothing further was asked, or the model does "
            "not come by there."
        )
    return (
        "The model did not run in this block. A trace runs as far as something is asked of it, and a generation when "
        "its own block is left: open the edit around it."
    )


def _paths(tracks: Iterable[Track]) -> str:
    return ", ".join(sorted({track.edit.address.path for track in tracks}))


_TAKING_TURNS = (
    "this edit ends while another is in force that was opened after it. Generators that each hold an edit took turns, "
    "and an edit stays in force while its generator waits, so that each acted on the passes of both. Give each an "
    "edited model instead, `model.edited({…})`, which acts on its own passes alone; or open the edit anew in each turn."
)
