"""What became of an edit: how often its function was called, whether its positions came, and, if none did, why."""

from __future__ import annotations

from torch import Tensor

from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.positions import Choice, NewToken, along, selected
from cutaway.edits.rows import Rows


class Track:
    """One edit, over the passes of a block or of an edited model.

    Attributes:
        calls: how often its function was called.
        absent: how often a call came by that did not have the value, a mask that was not given say.
    """

    def __init__(self, edit: FunctionEdit) -> None:
        self.edit = edit
        self.calls = 0
        self.absent = 0
        self._came = edit.choice is None
        self._longest = 0
        self._prompt = 0

    def note(self, rows: Rows, chosen: Tensor) -> None:
        """Notes whether any of the positions came; `chosen` are the places of the value that are meant."""
        if self._came or chosen.is_meta:
            self._came = True  # on the meta device it is not known which are meant
            return
        self._longest = max(self._longest, int((rows.where >= 0).sum(dim=1).max()))
        self._prompt = max(self._prompt, int(rows.ends.max()))
        self._came = bool(chosen.any())

    @property
    def acted(self) -> bool:
        """Whether it was called, and at least one of its positions came."""
        return self.calls > 0 and self._came

    def why_not(self) -> str:
        """Of an edit that was called: what never came, and what did."""
        choice = self.edit.choice
        tokens = f"{self._longest} token{'s' if self._longest != 1 else ''}"
        generated = self._longest - self._prompt
        if isinstance(choice, NewToken):
            return f"was called, and step {choice + 1} never came: {_generated(generated)}"
        if choice == "new":
            return (
                "was called, and no new token ever came: every pass ran a prompt. 'new' are the tokens that `generate` "
                "adds and then runs; the last that it adds is not run"
            )
        if isinstance(choice, int):
            return f"was called, and position {choice} never came: the longest row had {tokens}, the first at 0"
        return f"was called, and none of the positions {_written(choice)} ever came: the longest row had {tokens}"


def _generated(count: int) -> str:
    if count <= 0:
        return "no generated token was run. Steps are those of a generation, and the last token that it adds is not run"
    return f"the last step was {count}"


def _written(choice: Choice) -> str:
    if isinstance(choice, slice):
        ends = ["" if end is None else str(end) for end in (choice.start, choice.stop, choice.step)]
        return f"{ends[0]}:{ends[1]}" + (f":{ends[2]}" if ends[2] else "")
    return repr(choice)


def chosen_places(edit: FunctionEdit, rows: Rows, length: int) -> Tensor:
    """The places of the value, along its axis of tokens, that an edit means: `[batch length]`."""
    assert edit.address.value is not None
    return along(selected(edit.choice, rows), edit.address.value, length, rows)
