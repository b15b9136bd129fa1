"""The primitive: attach a callback to a moment of a module's call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn

from cutaway.sites import Moment, OperationMoment
from cutaway.sites.slots import Call, FirstArgument, TokenRows
from cutaway.tracing.batch import batch_under_way
from cutaway.tracing.hook import Hook
from cutaway.tracing.interior import Tap
from cutaway.tracing.operations import OperationTap

Callback = Callable[[Any], Any]
"""Given what passes; returns what is to pass on in its place, or None to leave it."""

Answers = Callable[[], bool]
"""Whether the call under way is one that the callback is meant for."""


_Keywords = dict[str, Any] | None
"""None in a call of another thread: torch notes that a hook wants keywords after it has put the hook in, and takes the
note off after the hook."""


class Attachment(Protocol):
    """Something on a module that can be taken off, also where an interrupt has cut that or its start short."""

    def put_on(self) -> None:
        """Puts it on."""
        ...

    def remove(self) -> None:
        """Takes off exactly what was put on, as much of it as there is; may be called again."""
        ...


def put_on(attachment: Attachment, noted: list[Attachment]) -> None:
    """Puts something on, after it is noted, so that whoever takes off what is noted there leaves nothing behind."""
    noted.append(attachment)
    attachment.put_on()


def remove_all(attachments: list[Attachment]) -> None:
    """Takes everything in a list off, the last first, and empties it.

    It goes on where one removal raises, or an interrupt cuts it short, tries that once more, and raises what was raised
    first at the end.
    """
    raised: list[BaseException] = []
    for _ in range(2):
        for attachment in reversed(attachments):
            try:
                attachment.remove()
            except BaseException as error:  # an interrupt above all
                raised.append(error)
        if not raised:
            break
    attachments.clear()
    if raised:
        raise raised[0]


def attach(
    module: nn.Module,
    moment: Moment | OperationMoment,
    callback: Callback,
    answers: Answers,
    noted: list[Attachment] | None = None,
    *,
    first: bool = False,
) -> Attachment:
    """Attaches `callback` to a moment of `module`'s calls, as far as `answers()` is true when they come there.

    The four moments inside an attention are served through transformers' attention interface, which is in force only
    while something is attached there. With `first`, which a module's entrance alone knows, the callback comes before
    those that were attached earlier.

    The attachment is added to `noted` before it is put on, so that whoever takes off what is noted there leaves nothing
    behind, whenever an interrupt comes.
    """
    attachment = _attachment(module, moment, callback, answers, first)
    if noted is not None:
        noted.append(attachment)
    attachment.put_on()
    return attachment


def _attachment(
    module: nn.Module, moment: Moment | OperationMoment, callback: Callback, answers: Answers, first: bool
) -> Attachment:
    if moment == "exit":

        def on_exit(_module: nn.Module, _args: Any, output: Any) -> Any:
            return callback(output) if answers() else None

        return Hook(module, on_exit, at_entrance=False)
    if moment == "enter":

        def on_enter(_module: nn.Module, args: tuple[Any, ...], kwargs: _Keywords = None) -> Any:
            return callback(Call(args, kwargs)) if kwargs is not None and answers() else None

        return Hook(module, on_enter, at_entrance=True, first=first)
    if moment == "token rows out":

        def on_rows_out(module: nn.Module, _args: Any, output: Any) -> Any:
            if not answers():
                return None
            changed = callback(TokenRows(output, batch_under_way(module)))
            return None if changed is None else changed.passing

        return Hook(module, on_rows_out, at_entrance=False)
    if moment == "token rows in":

        def on_rows_in(module: nn.Module, args: tuple[Any, ...], kwargs: _Keywords = None) -> Any:
            if kwargs is None or not answers():
                return None
            changed = callback(TokenRows(Call(args, kwargs), batch_under_way(module)))
            return None if changed is None else changed.passing

        return Hook(module, on_rows_in, at_entrance=True)
    if moment == "stream":

        def on_stream(_module: nn.Module, args: tuple[Any, ...], kwargs: _Keywords = None) -> Any:
            return _edit_both_ways(Call(args, kwargs), callback) if kwargs is not None and answers() else None

        return Hook(module, on_stream, at_entrance=True)
    if moment == "stream of token rows":

        def on_stream_of_rows(module: nn.Module, args: tuple[Any, ...], kwargs: _Keywords = None) -> Any:
            if kwargs is None or not answers():
                return None
            batch = batch_under_way(module)

            def by_rows(call: Call) -> Call | None:
                changed = callback(TokenRows(call, batch))
                return None if changed is None else changed.passing

            return _edit_both_ways(Call(args, kwargs), by_rows)

        return Hook(module, on_stream_of_rows, at_entrance=True)
    if isinstance(moment, OperationMoment):
        return OperationTap(module, moment, callback, answers)
    return Tap(module, moment, callback, answers)


_FIRST = FirstArgument()


def _edit_both_ways(call: Call, callback: Callback) -> Call | None:
    """Serves a stream that enters a module and passes by it.

    The caller holds the tensor that passes by, so an edit is written into it. The callback is given a copy: what it
    keeps is its own, and autograd may save it.
    """
    stream: Tensor = _FIRST.read(call, {})
    given = stream.clone()
    offered = _FIRST.write(call, given)
    changed = callback(offered)
    passing = offered if changed is None else changed
    new: Tensor = _FIRST.read(passing, {})
    if new is given and not given.is_inference() and given._version == 0:
        return None
    stream.copy_(new)
    return passing
