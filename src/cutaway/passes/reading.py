"""Many values in one pass, without a with-block: `model.read(prompt, "layers.*.layer_output", "logits")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from cutaway.edits.application import Application
from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.picking import at_positions
from cutaway.edits.positions import Choice, token_axis
from cutaway.edits.rows import ModelCall, Rows
from cutaway.errors import InputError, UnavailableValueError
from cutaway.passes.callers import CallersCache, with_own_tensors
from cutaway.passes.derived import derive
from cutaway.passes.embedded import refuse_without_ids
from cutaway.passes.saving import carry_save
from cutaway.sites import Moment, OperationMoment
from cutaway.sites.slots import Call, map_tensors
from cutaway.subject.address import Address
from cutaway.subject.names import Name, address_of
from cutaway.subject.subject import Subject
from cutaway.tracing import ForwardPass
from cutaway.vocabulary import Value, ValuePath


def read(
    subject: Subject,
    inputs: Mapping[str, Any],
    names: Sequence[Name],
    edits: Sequence[FunctionEdit] = (),
    choice: Choice = None,
) -> dict[str, Any]:
    """What these names stand for, by path, in the order of a pass, which is left after the last of them.

    With a `choice` of positions, of each value that has an axis of tokens the part that belongs to these.
    """
    if choice is not None:
        _refuse_without_tokens(names)
    derived = [name for name in names if isinstance(name, ValuePath) and name.value.derived]
    wanted = [address_of(subject, name) for name in names if name not in derived]
    sources = {str(source): subject.address(source) for path in derived for source in path.sources}
    needed = {address.path: address for address in wanted} | sources
    found: dict[str, Any] = {}
    call = ModelCall.of(Call((), dict(inputs)))
    for address in wanted:
        refuse_without_ids(subject, address, call)
    if needed:
        call = _run(subject, call, list(needed.values()), edits, found)
    rows = None if choice is None else Rows.of(call, subject.hf)

    def derived_now(path: ValuePath) -> Any:
        value = derive(subject, path, lambda: call, lambda source: found[str(source)])
        return value if rows is None else _part(path.value, value, choice, rows)

    values = {str(path): derived_now(path) for path in derived if not path.sources}
    asked = {address.path for address in wanted}
    last = {
        path: max(path.sources, key=lambda source: list(found).index(str(source))) for path in derived if path.sources
    }
    known = {str(name): name.value for name in names if isinstance(name, ValuePath)}
    for reached, value in found.items():
        if reached in asked:
            values[reached] = value if rows is None else _part(known[reached], value, choice, rows)
        for path, source in last.items():
            if str(source) == reached:
                values[str(path)] = derived_now(path)
    return values


def _refuse_without_tokens(names: Sequence[Name]) -> None:
    unknown = [name for name in names if not isinstance(name, ValuePath)]
    if unknown:
        raise InputError(
            f"it is not known which axis of `{unknown[0]}` is that of its tokens, so it cannot be read at positions. "
            "Read it whole, or read a value of the vocabulary."
        )
    if all(token_axis(name.value) is None for name in names if isinstance(name, ValuePath)):
        raise InputError(f"{', '.join(f'`{name}`' for name in names)} has no axis of tokens to be read at positions.")


def _part(value: Value, tensor: Any, choice: Choice, rows: Rows) -> Any:
    """The part of a value that belongs to these positions; all of one that has no axis of tokens."""
    if token_axis(value) is None or tensor is None:
        return tensor
    return carry_save(at_positions(value, tensor, choice, rows))


def _run(
    subject: Subject,
    call: ModelCall,
    addresses: list[Address],
    edits: Sequence[FunctionEdit],
    found: dict[str, Any],
) -> ModelCall:
    """Runs the pass up to the last of the addresses; what it comes by is found in that order.

    Returns the pass's call as the model was given it.
    """
    last = max(reversed(addresses), key=lambda address: subject.survey.order[_end(address)])
    cache = CallersCache.among(call.call.kwargs)
    running = ForwardPass(partial(subject.hf, **with_own_tensors(call.call.kwargs)), grad=False)
    applied = Application(subject, edits, running.answers) if edits else None
    given = [call]
    keep = partial(_keep, subject, found, cache is not None)
    done = False

    def close() -> None:
        try:
            running.close()
        finally:
            if applied is not None:
                applied.remove()
        if cache is not None and not done:
            cache.put_back()

    try:
        try:
            running.keep(subject.as_written())
            running.follow(subject.occurrences(running.answers))
            running.note_batch(subject.batch_note(running.answers))
            if applied is not None:
                applied.put_on()
            # After the edits, so that it is given the call as they leave it.
            running.attach(subject.hf, "enter", lambda passing: given.append(ModelCall.of(passing)))
            for address in addresses:
                if address is not last or isinstance(last.moment, OperationMoment):
                    running.attach(address.module, address.moment, keep(address), address.module_path)
            moment = _end(last)[1]
            stop = running.run_to(last.module, moment, path=last.module_path)
            if stop is not None and moment == last.moment:
                keep(last)(stop.passing)
            if cache is not None or (last.module is subject.hf and moment == "exit"):
                running.run_to_end()  # to have the cache advanced, or since nothing is left but to return
            for address in addresses:
                if address.path not in found:
                    raise _not_come_by(address)
            if applied is not None:
                applied.warn_of_idle(to_the_end=running.finished)
            done = True
        finally:
            close()
    except BaseException:
        close()  # once more, where an interrupt has cut it short
        raise
    return given[-1]


def _not_come_by(address: Address) -> UnavailableValueError:
    return UnavailableValueError(
        f"the pass did not come by {address.describe()}. Either this call does not use it, or the module was exchanged "
        "after the model was opened: then open it again."
    )


def _end(address: Address) -> tuple[str, Moment]:
    """When an address is passed for certain: of a call inside a forward it is known when the forward has ended."""
    return address.module_path, "exit" if isinstance(address.moment, OperationMoment) else address.moment


def _keep(subject: Subject, found: dict[str, Any], cached: bool, address: Address) -> Callable[[Any], None]:
    """A callback that keeps a value; as a copy what goes on to change: the tensor of a caller's cache, or one that the
    model writes into."""
    copied = cached and (address.moment == "arguments" or isinstance(address.moment, OperationMoment))
    copied = copied or address.overwritten

    def keep(passing: Any) -> None:
        value = address.read(passing)
        found[address.path] = carry_save(map_tensors(torch.clone, value) if copied else value)

    return keep
