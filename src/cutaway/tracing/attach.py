"""The primitive: attach a callback to a moment of a module's call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn

from cutaway.sites import Moment, OperationMoment
from cutaway.sites.slots import Call, FirstArgument
from cutaway.tracing.interior import AttentionInterior
from cutaway.tracing.operations import tap_operation

Callback = Callable[[Any], Any]
"""Given what passes; returns what is to pass on in its place, or None to leave it."""

Answers = Callable[[], bool]
"""Whether the call under way is one that the callback is meant for."""


_Keywords = dict[str, Any] | None
"""None in a call of another thread: torch notes that a hook wants keywords after it has put the hook in, and takes the
note off after the hook."""


class Attachment(Protocol):
    """What `attach` returns; `remove()` takes off exactly what was attached, and may be called twice."""

    def remove(self) -> None:
        """Detaches the callback."""
        ...


def attach(
    module: nn.Module, moment: Moment | OperationMoment, callback: Callback, answers: Answers, *, first: bool = False
) -> Attachment:
    """Attaches `callback` to a moment of `module`'s calls, as far as `answers()` is true when they come there.

    The four moments inside an attention are served through transformers' attention interface, which is in force only
    while something is attached there. With `first`, which a module's entrance alone knows, the callback comes before
    those that were attached earlier.
    """
    if moment == "exit":

        def on_exit(_module: nn.Module, _args: Any, output: Any) -> Any:
            return callback(output) if answers() else None

        return module.register_forward_hook(on_exit)
    if moment == "enter":

        def on_enter(_module: nn.Module, args: tuple[Any, ...], kwargs: _Keywords = None) -> Any:
            return callback(Call(args, kwargs)) if kwargs is not None and answers() else None

        return module.register_forward_pre_hook(on_enter, with_kwargs=True, prepend=first)
    if moment == "stream":

        def on_stream(_module: nn.Module, args: tuple[Any, ...], kwargs: _Keywords = None) -> Any:
            return _edit_both_ways(Call(args, kwargs), callback) if kwargs is not None and answers() else None

        return module.register_forward_pre_hook(on_stream, with_kwargs=True)
    if isinstance(moment, OperationMoment):
        return tap_operation(module, moment, callback, answers)
    return AttentionInterior.tap(module, moment, callback, answers)


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
