"""Late edits in place: a tensor that the pass has left, and that the body writes into all the same.

torch counts how often a tensor was edited. The counts are noted whenever control comes back to the body; where one has
grown by the time the body goes on, the body has edited that tensor, and not the model.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cutaway.errors import LateEditError
from cutaway.subject.address import Address


class LeftBehind:
    """The tensors that were handed out and that the pass has left since."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._tensors: list[Tensor] = []
        self._versions: list[int] = []

    def add(self, path: str, thing: Any) -> None:
        """Takes in a value, or the tensors in it. torch does not count the edits of one made under inference mode."""
        for tensor in tensors_in(thing):
            if not tensor.is_inference():
                self._paths.append(path)
                self._tensors.append(tensor)

    def note(self) -> None:
        """Notes the counts as they are now: whatever they count so far is the model's doing, or was in time."""
        self._versions = [tensor._version for tensor in self._tensors]

    def clear(self) -> None:
        """Forgets everything."""
        self._paths.clear()
        self._tensors.clear()
        self._versions.clear()

    def refuse_edited(self, passing: Any, here: Address | None) -> None:
        """Raises where one of the tensors was edited since the counts were noted.

        A tensor may pass in two places, as a block's output and the next one's input; edited at the later one while
        the pass waits there, it is in time.

        Args:
            passing: what passes where the pass waits, or None.
            here: that place, for the message.

        Raises:
            LateEditError: naming the value.
        """
        now = [tensor._version for tensor in self._tensors]
        if now == self._versions:
            return
        where = f" to {here.describe()}" if here is not None else ""
        in_time = {storage(tensor) for tensor in tensors_in(passing)}
        for path, tensor, before, after in zip(self._paths, self._tensors, self._versions, now, strict=True):
            if before != after and storage(tensor) not in in_time:
                raise LateEditError(
                    f"`{path}` was edited in place after the pass had moved on{where}, so the edit has no defined "
                    "effect. Edit it before asking for a later value, or work on a copy: `.save()` or `.clone()`."
                )


def tensors_in(thing: Any) -> list[Tensor]:
    """The tensors in a value: itself, or those in a tuple, list or dict."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, dict):
        thing = tuple(thing.values())
    if isinstance(thing, (tuple, list)):
        return [tensor for item in thing for tensor in tensors_in(item)]
    return []


def storage(tensor: Tensor) -> int:
    """What tells the memory that a tensor is in; views share it."""
    return tensor.untyped_storage()._cdata
