"""Whether an edit takes the place of what was there: wholly, bit by bit, and in place as well as by assignment.

At each place, what passes is written again with an equal copy, and the memory that it was read from is spoilt: filled
with NaN. If the edit arrives, the copy is all that the model reads from there on, so every later value comes out as it
was, bit for bit. If the model goes on with what was there before, or with a part of it, a NaN comes through, since no
weight, not even zero, and no saturated softmax takes a NaN away. So all places of all layers are tested in one pass,
on any weights. Ids and masks know no NaN: the model is called with others, and the edit writes the right ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from cutaway.errors import CheckError
from cutaway.inspection.check.compare import another, same, same_bits
from cutaway.inspection.check.places import Place, Seen, Tap, run
from cutaway.passes.late_edits import tensors_in
from cutaway.sites import STREAMS, Moment, OperationMoment
from cutaway.sites.slots import Call
from cutaway.subject.subject import Subject

_STREAM = ("layer_input", "layer_mid", "layer_output")
"""The stream itself: where an edit of it takes place, nobody may go on with the old one."""


class Mend:
    """One pass in which places are spoilt and mended.

    Attributes:
        parted: the first place at which something else passed than in the pass before, or None.
    """

    def __init__(self, subject: Subject, inputs: Mapping[str, Tensor], before: Seen) -> None:
        self.parted: Place | None = None
        self._subject = subject
        self._inputs = inputs
        self._before = before
        self._weights = {_memory(t) for t in (*subject.hf.parameters(), *subject.hf.buffers())}
        self._written: dict[int, Tensor] = {}
        self._spoilt: list[tuple[Any, Tensor, Tensor]] = []
        self._ahead: dict[str, Tensor] = {}

    def run(self, edited: Sequence[Place], at: Sequence[Place]) -> bool:
        """Edits some of the places, looks at all, and says whether all is as it was before."""
        inputs = dict(self._inputs)
        for place in edited:
            if place.name in inputs:
                inputs[place.name] = _others(place.name, inputs[place.name], self._subject.sizes["vocab_size"])
        names = {place.name for place in edited}
        taps: list[Tap] = []
        for place in at:
            taps += self._edit(place) if place.name in names else [self._look(place)]
        try:
            result = run(self._subject, inputs, [*taps, *self._restoring(edited), self._entrance(edited)])
        finally:
            self._restore(None, everything=True)
        return self.parted is None and same(result, self._before.result)

    def _look(self, place: Place) -> Tap:
        address = place.address

        def look(passing: Any) -> None:
            self._compare(place, address.read(passing))

        return Tap(address.module, address.moment, look, address.module_path)

    def _edit(self, place: Place) -> list[Tap]:
        address = place.address
        edit = Tap(address.module, address.moment, self._mending(place), address.module_path)
        if address.moment not in STREAMS:
            return [edit]

        def spoil_ahead(passing: Any) -> None:
            """Spoils the stream that passes by the module too, before it is edited."""
            stream = address.read(passing)
            self._ahead[place.name] = stream.clone()
            self._spoil(place, stream)

        before: Moment = "enter" if address.moment == "stream" else "token rows in"
        return [Tap(address.module, before, spoil_ahead), edit]

    def _mending(self, place: Place) -> Callable[[Any], Any]:
        address = place.address

        def mend(passing: Any) -> Any:
            old = address.read(passing)
            if not any(_memory(old) == _memory(tensor) for tensor in tensors_in(passing)):
                raise CheckError(
                    f"an edit of `{place.name}` in place does not arrive: what is read at {address.describe()} is a "
                    "copy of what passes there.",
                    value=place.name,
                )
            if place.name in self._inputs:
                return self._write(place, passing, self._inputs[place.name].clone())
            new = self._ahead.pop(place.name, None)
            new = old.clone() if new is None else new
            self._compare(place, new)
            passing = self._write(place, passing, new)
            if address.moment != "exit" or _memory(old) not in self._written:
                self._spoil(place, old)  # at an exit, what was written before is a value that passes through
            self._written[_memory(new)] = new  # kept, so that its memory is not another's meanwhile
            return passing

        return mend

    def _write(self, place: Place, passing: Any, new: Tensor) -> Any:
        """Writes something else, to see whether it is there, then what is to stay."""
        address = place.address
        other = another(new)
        passing = address.write(passing, other)
        if same_bits(address.read(passing), other):
            return address.write(passing, new)
        raise CheckError(
            f"an edit of `{place.name}` does not arrive: what passes at {address.describe()} after it is not what was "
            "written, bit for bit.",
            value=place.name,
        )

    def _compare(self, place: Place, found: Tensor) -> None:
        if self.parted is None and place.name not in self._inputs and not same(found, self._before.values[place.name]):
            self.parted = place

    def _spoil(self, place: Place, old: Tensor) -> None:
        overlaps = any(stride == 0 and size > 1 for stride, size in zip(old.stride(), old.shape, strict=True))
        if old.is_floating_point() and not overlaps and _memory(old) not in self._weights:
            self._spoilt.append((self._scope(place), old, old.clone()))
            old.fill_(float("nan"))

    def _scope(self, place: Place) -> nn.Module | None:
        """The module whose call is over when others may read again what an edit was to take the place of.

        A module's input may be read by others, and keys by later layers that share them.
        """
        address, name = place.address, place.paths[0].name
        if place.layer is None or name == "layer_output":
            return None
        if address.moment in ("exit", *STREAMS) or isinstance(address.moment, OperationMoment) or name in _STREAM:
            return self._subject.modules[self._subject.host_path("layer", place.layer)]
        return address.module

    def _restoring(self, edited: Sequence[Place]) -> list[Tap]:
        scopes = dict.fromkeys(scope for place in edited if (scope := self._scope(place)) is not None)
        return [Tap(scope, "exit", self._restorer(scope)) for scope in scopes]

    def _restorer(self, scope: nn.Module) -> Callable[[Any], None]:
        return lambda _: self._restore(scope)

    def _restore(self, scope: nn.Module | None, everything: bool = False) -> None:
        kept: list[tuple[Any, Tensor, Tensor]] = []
        for entry in reversed(self._spoilt):
            if everything or (scope is not None and entry[0] is scope):
                entry[1].copy_(entry[2])
            else:
                kept.append(entry)
        self._spoilt = kept[::-1]

    def _entrance(self, edited: Sequence[Place]) -> Tap:
        """What the model's own forward is called with in the end."""
        names = [place.name for place in edited if place.name in self._inputs]

        def look(call: Call) -> None:
            for name in names:
                if not same_bits(call.kwargs[name], self._inputs[name]):
                    raise CheckError(f"an edit of `{name}` does not arrive: the model's forward is given another one.")

        return Tap(self._subject.hf, "enter", look)


def edits_take_place(subject: Subject, inputs: Mapping[str, Tensor], at: Sequence[Place], before: Seen) -> int:
    """Edits every writable place at once, and gives the number of values.

    Args:
        at: all places.
        before: what passed there in a pass without edits.

    Raises:
        CheckError: naming the value whose edit does not arrive.
    """
    edited = [place for place in at if place.writable]
    mend = Mend(subject, inputs, before)
    if not mend.run(edited, at):
        _name_the_one(subject, inputs, at, before, mend.parted)
    return sum(len(place.paths) for place in edited)


def _name_the_one(
    subject: Subject, inputs: Mapping[str, Tensor], at: Sequence[Place], before: Seen, parted: Place | None
) -> None:
    """Edits the places that come shortly before the one where the passes parted each by itself."""
    end = at.index(parted) if parted is not None else len(at)
    near = parted.layer if parted is not None else subject.sizes["num_layers"]
    for place in reversed(at[:end]):
        far = near is not None and place.layer is not None and place.layer < near - 1
        if place.writable and not far:
            alone = Mend(subject, inputs, before)
            if not alone.run([place], at):
                seen = f"`{alone.parted.name}`" if alone.parted is not None else "what the model returns"
                raise CheckError(
                    f"an edit of `{place.name}` at {place.address.describe()} does not arrive everywhere: "
                    f"{seen} is computed from what was there before it.",
                    value=place.name,
                )
    what = f"`{parted.name}`" if parted is not None else "what the model returns"
    raise CheckError(f"edits do not arrive: {what} is computed from values as they were before they were edited.")


def _others(name: str, tensor: Tensor, vocab_size: int) -> Tensor:
    """Other ids, or the opposite mask."""
    return (tensor + 1) % vocab_size if name == "input_ids" else 1 - tensor


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
