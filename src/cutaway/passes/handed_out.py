"""What the body is given where a pass waits: the very tensor that passes, or a copy that flows on in its place.

A copy is given where the tensor is not this value's alone, so that an edit in place means what an assignment means:

- With gradients, always. Each value is then a node of its own in the graph, at its own moment: its gradient is what
  comes back through its own place, whatever other name the same tensor passed under before, and an edit in place spoils
  nothing that autograd kept for the way back.
- Keys and values as they enter attention may be the cache's own tensors.
- What a module is called with, and what a call inside a forward is given or returns, may be held by others too, as the
  normed stream is by three projections. (A value of the vocabulary has its place chosen so that it is not, but for an
  MLP without a norm, which is given the stream itself.)
- A tensor made under inference mode has no count of its edits, by which a late one is told.

Two names of one moment are one tensor, or two views of one, so that an edit under either name shows under both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutaway.passes.gradients import own_in_graph
from cutaway.passes.late_edits import storage, tensors_in
from cutaway.passes.saving import carry_save
from cutaway.sites.slots import map_tensors
from cutaway.subject.address import Address
from cutaway.tracing import Stop


class HandedOut:
    """The values that were handed out at the one moment where a pass waits.

    Attributes:
        values: each by its address's place.
    """

    def __init__(self, *, grad: bool) -> None:
        self.values: dict[str, Any] = {}
        self._addresses: list[Address] = []
        self._grad = grad

    def hand_out(self, address: Address, stop: Stop) -> Any:
        """The value at an address of the moment, or the copy that passes in its place from now on."""
        value = address.read(stop.passing)
        if self._grad or address.shared or (isinstance(value, Tensor) and value.is_inference()):
            value = self._own(value, only_inference=not (self._grad or address.shared))
            stop.passing = address.write(stop.passing, value)
        carry_save(value)
        self.values[address.place] = value
        self._addresses.append(address)
        return value

    def relink(self, stop: Stop) -> None:
        """Has what passes on come of every view that was handed out.

        A tensor and its split into heads may both have been handed out. Where the one was edited in place, torch has
        the tensor that passes on come of it directly, past the other. Where the model is known to write into what
        passes, it is given a copy.
        """
        if self._grad and len(self._addresses) > 1:
            for address in self._addresses:
                value = self.values[address.place]
                if isinstance(value, Tensor):
                    stop.passing = address.write(stop.passing, value)
        for address in self._addresses:
            value = self.values[address.place]
            if address.overwritten and isinstance(value, Tensor):
                stop.passing = address.write(stop.passing, value.clone())  # what was handed out stays as it is

    def clear(self) -> None:
        """Forgets everything."""
        self.values.clear()
        self._addresses.clear()

    def _own(self, value: Any, *, only_inference: bool) -> Any:
        known = {storage(tensor) for tensor in tensors_in(tuple(self.values.values()))}

        def own(tensor: Tensor) -> Tensor:
            if storage(tensor) in known:
                if self._grad and tensor.grad_fn is not None:
                    tensor.retain_grad()
                return tensor
            if self._grad and tensor.is_floating_point():
                return own_in_graph(tensor)
            return own_copy(tensor) if not only_inference or tensor.is_inference() else tensor

        return map_tensors(own, value)


def own_copy(tensor: Tensor) -> Tensor:
    """A copy that counts its edits, also where inference mode is on."""
    if not torch.is_inference_mode_enabled():
        return tensor.clone()
    with torch.inference_mode(False), torch.no_grad():
        return tensor.clone()
