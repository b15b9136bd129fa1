"""The places of a model where values are read and written, and a pass with something attached to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from cutaway.errors import CheckError
from cutaway.sites import OF_SOFTMAX, Moment, OperationMoment
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject
from cutaway.tracing import ForwardPass
from cutaway.vocabulary import ValuePath


@dataclass(frozen=True)
class Place:
    """One tensor at one moment, and the paths of all values that it is: both norm outputs where one norm feeds two."""

    paths: tuple[ValuePath, ...]
    address: Address

    @property
    def name(self) -> str:
        """The path of the first value, by which it is told."""
        return str(self.paths[0])

    @property
    def layer(self) -> int | None:
        """The layer that it is in."""
        return self.paths[0].layer

    @property
    def writable(self) -> bool:
        """Whether an edit is promised to have an effect."""
        return not all(path.value.read_only for path in self.paths)

    @property
    def is_pattern(self) -> bool:
        """Whether it is inside an eager attention alone: scores or pattern."""
        return self.address.moment in OF_SOFTMAX


class Tap(NamedTuple):
    """What is attached to a pass: a callback at a moment of a module."""

    module: nn.Module
    moment: Moment | OperationMoment
    callback: Callable[[Any], Any]
    path: str = ""
    """Where the module stands, if it stands in several places."""


def places(subject: Subject) -> list[Place]:
    """All places of this model's values, in the order of a pass."""
    found: dict[str, list[ValuePath]] = {}
    for path in subject.value_paths:
        if not path.value.derived:
            found.setdefault(subject.address(path).place, []).append(path)
    return [Place(tuple(paths), subject.address(paths[0])) for paths in found.values()]


def run(subject: Subject, inputs: Mapping[str, Tensor], taps: Iterable[Tap]) -> Tensor:
    """Runs the model with something attached, which is taken off again, and returns its result."""
    running = ForwardPass(partial(subject.hf, **inputs), grad=False)
    try:
        running.keep(subject.as_written())
        running.follow(subject.occurrences(running.answers))
        running.note_batch(subject.batch_note(running.answers))
        for tap in taps:
            running.attach(*tap)
        result = result_of(subject, running.run_to_end())
        running.close()
        return result
    except BaseException:
        running.close()  # also where an interrupt has cut it short
        raise


def run_plain(subject: Subject, inputs: Mapping[str, Tensor]) -> Tensor:
    """Runs the transformers model by itself, and returns its result."""
    with torch.no_grad():
        written = subject.as_written()
        try:
            written.put_on()
            result = result_of(subject, subject.hf(**inputs))
            written.remove()
            return result
        except BaseException:
            written.remove()  # also where an interrupt has cut it short
            raise


def result_of(subject: Subject, output: Any) -> Tensor:
    """The tensor of what a model returns by which two passes are compared: its logits; of a model without a
    language-model head the first there is, the stream of a base model, the classes of a classifier."""
    if subject.has_site("logits"):
        return output.logits
    return next(leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))


def result_word(subject: Subject) -> str:
    """What `result_of` gives, in a word for a sentence."""
    return "logits" if subject.has_site("logits") else "results"


class Seen(NamedTuple):
    """What passed in a pass: the values by path, and the result that the model returned, see `result_of`."""

    values: dict[str, Tensor]
    result: Tensor


def look(subject: Subject, inputs: Mapping[str, Tensor], at: Sequence[Place]) -> Seen:
    """Reads values and leaves them as they are.

    Raises:
        CheckError: a value is not there; it is named.
    """
    values: dict[str, Tensor] = {}
    result = run(subject, inputs, [_note(subject, place, values) for place in at])
    for place in at:
        if place.name not in values:
            raise CheckError(f"a pass of this model does not come by {place.address.describe()}.", value=place.name)
    return Seen(values, result)


def _note(subject: Subject, place: Place, values: dict[str, Tensor]) -> Tap:
    address = place.address

    def note(passing: Any) -> None:
        try:
            value = address.read(passing)
        except (RuntimeError, KeyError) as error:  # what passes cannot be seen in the layout
            text = f"`{place.name}` cannot be seen as {address.value.layout if address.value else 'a tensor'}: {error}"
            raise CheckError(text, value=place.name) from error
        if not isinstance(value, Tensor):
            raise CheckError(
                f"`{place.name}` is no tensor at {address.describe()}: it is a {type(value).__name__}.",
                value=place.name,
            )
        kept = value.clone()  # what passes may be written into further on
        values.update({str(path): kept for path in place.paths})

    return Tap(address.module, address.moment, note, address.module_path)
