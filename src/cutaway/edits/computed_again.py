"""Edits inside the user's own `torch.utils.checkpoint`, whose block may have ended when backward computes again.

A checkpoint forgets what its function computed, and backward runs the function once more. An edit that was opened
around the checkpoint is not made then, if its block has been left, and the gradients would be those of another model.
The kind that keeps the graph has a place for a word at the edit itself; of the reentrant kind, whose forward is without
a graph, it is counted whether backward has come by once the block is left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutaway.errors import GradientError
from cutaway.sites.slots import map_tensors
from cutaway.subject.address import Address
from cutaway.tracing.attach import Answers
from cutaway.tracing.checkpointing import backward_under_way, checkpoint_around, reentrant_around


class ComputedAgain:
    """Of edits, what a checkpoint that was begun after them will compute again. Made when they are opened."""

    def __init__(self, in_force: Answers) -> None:
        self._in_force = in_force
        self._around = checkpoint_around()
        self._reentrant = reentrant_around()
        self._owed: dict[str, int] = {}

    def mark(self, address: Address, new: Any) -> Any:
        """What an edit made of a value, with a word on the way back that the edit must be in force there."""
        again = backward_under_way() != -1
        if again:
            self._owed[address.path] = max(0, self._owed.get(address.path, 0) - 1)
        elif reentrant_around() > self._reentrant:
            self._owed[address.path] = self._owed.get(address.path, 0) + 1
        around = checkpoint_around()
        if around is None or around is self._around or not torch.is_grad_enabled():
            return new

        def refuse(_gradient: Tensor) -> None:
            self._refuse(address.path)

        def marked(value: Tensor) -> Tensor:
            if not (value.is_floating_point() or value.is_complex()):
                return value
            if (
                not value.requires_grad
            ):  # as one that replaces its value by zeros; what follows it is computed again too
                value = value.detach().requires_grad_()
            value = value.view_as(value)
            if not again:  # the second time it is done alike, since torch counts what the two keep
                value.register_hook(refuse)
            return value

        return map_tensors(marked, new)

    def _refuse(self, path: str) -> None:
        if not self._in_force():
            raise GradientError(_GONE.format(path=path))

    def refuse_owed(self) -> None:
        """On leaving the block.

        Raises:
            GradientError: a reentrant checkpoint holds an edited forward that backward has not come back through.
        """
        owed = [path for path, count in self._owed.items() if count]
        if owed:
            raise GradientError(_GONE.format(path="`, `".join(sorted(owed))))


_GONE = (
    "`{path}` was edited inside a `torch.utils.checkpoint`, whose forward backward computes again, and the edit is not "
    "in force there: the gradients would be those of the model without it. Call backward inside the block that edits, "
    "or open the edit inside the function that is checkpointed, or call the model that `model.edited({{…}}).hf` gives."
)
