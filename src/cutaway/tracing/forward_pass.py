"""A forward pass that can be stopped at any moment of any module, and resumed.

The pass runs in a greenlet: a second stack in the same thread. When its callback at a moment is reached, it switches
back to the body of the user's with-block, which is ordinary Python run where it stands, and waits there. The body
switches back when it asks for something further on. Whatever passes at the moment is kept in a `Stop`, where the body
may exchange it.

Each side keeps its own torch settings and context variables. Callbacks answer only to their own pass, which is
told by the greenlet that runs: traces nest, threads trace one model at once, and a plain call of the model inside
the body is no part of any pass.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import greenlet
from torch import nn

from cutaway.errors import NoTraceError
from cutaway.sites import STREAMS, Moment, OperationMoment
from cutaway.tracing.attach import Attachment, attach, remove_all
from cutaway.tracing.hook import Hook
from cutaway.tracing.occurrences import Occurrences, both
from cutaway.tracing.overlays import Door
from cutaway.tracing.torch_state import Guard, Switch, torch_state

Event = tuple[nn.Module, Moment | OperationMoment]
"""A moment of one module's call."""


class Stop:
    """Where a pass waits: the event, and what passes there. `passing` is what will pass on."""

    __slots__ = ("event", "passing")

    def __init__(self, event: Event, passing: Any) -> None:
        self.event = event
        self.passing = passing


class ForwardPass:
    """Runs `call` up to the events asked of it.

    Attributes:
        stop: where the pass waits, or None before its start and after its end.
        result: what `call` returned, once `finished`.
        context: the context variables of the pass's side.
    """

    def __init__(self, call: Callable[[], Any], *, grad: bool) -> None:
        self.stop: Stop | None = None
        self.result: Any = None
        self.finished = False
        self._call: Callable[[], Any] | None = call
        self._greenlet: greenlet.greenlet | None = None
        self._state = torch_state()._replace(grad=grad)
        self._guard: Guard | None = None
        self.context = contextvars.copy_context()
        self._thread = threading.get_ident()
        self._attachments: list[Attachment] = []
        self._open: set[nn.Module] = set()
        self._doors: dict[nn.Module, Door] = {}
        self._entrances: dict[nn.Module, Callable[[Any], Any]] = {}
        self._occurrences: Occurrences | None = None

    @property
    def started(self) -> bool:
        """Whether anything has run."""
        return self._greenlet is not None

    @property
    def records(self) -> bool:
        """Whether autograd records what the pass computes where it waits."""
        return self._state.grad and not self._state.inference

    def answers(self) -> bool:
        """Whether the call under way is part of this pass."""
        return greenlet.getcurrent() is self._greenlet

    def keep(self, attachment: Attachment) -> None:
        """Puts something on that lasts as long as the pass."""
        self._put_on(attachment)

    def follow(self, occurrences: Occurrences | None) -> None:
        """Tells the calls of modules that stand in several places apart."""
        self._occurrences = occurrences
        if occurrences is not None:
            self._put_on(occurrences)

    def note_batch(self, note: Attachment | None) -> None:
        """Has the batch known to modules that are called with a row for each token."""
        if note is not None:
            self._put_on(note)

    def attach(
        self,
        module: nn.Module,
        moment: Moment | OperationMoment,
        callback: Callable[[Any], Any],
        path: str = "",
        *,
        first: bool = False,
    ) -> Attachment:
        """Attaches a callback that answers to this pass alone and lasts no longer than it; see `attach`.

        With `path`, a module that stands in several places answers in that one alone.
        """
        at = self._occurrences.at(module, path) if self._occurrences is not None else None
        return attach(module, moment, callback, both(self.answers, at), self._attachments, first=first)

    def run_to(
        self,
        module: nn.Module,
        moment: Moment | OperationMoment,
        within: Iterable[nn.Module] = (),
        until: Event | None = None,
        skippable: bool = False,
        path: str = "",
    ) -> Stop | None:
        """Runs the pass on to a moment of a module and leaves it waiting there; None if it ended before.

        Args:
            module, moment: where to stop.
            within: the modules that hold it. Their outputs can be asked for while the pass waits inside them.
            until: where to stop at the latest; the stop tells which of the two it was.
            skippable: whether `skip` may be said there, at a module's entrance.
            path: where the module stands, if it stands in several places.
        """
        events: list[Event] = [(module, moment)]
        if until is not None and until != (module, moment):
            events.append(until)
        self._keep_open(within)
        if moment != "exit":
            self._keep_open((module,))
        if skippable and module not in self._doors:
            door = Door(module, self.answers)
            self._put_on(door)
            self._doors[module] = door
        at_stream = self.stop is not None and self.stop.event in [(module, stream) for stream in STREAMS]
        if at_stream and moment == "enter":
            self._entrances[module] = partial(self._wait, (module, moment))  # torch looks at the hooks of before alone
            events = events[1:]
        attachments = [self.attach(*event, partial(self._wait, event), path) for event in events]
        if moment in STREAMS:
            self.attach(module, "enter", partial(self._enter, module), path)  # behind it, until the pass is over
        try:
            self._resume()
        finally:
            for attachment in attachments:
                attachment.remove()
                self._attachments.remove(attachment)
        return self.stop

    def skip(self, module: nn.Module, output: Any) -> None:
        """Has the call of `module` at whose entrance the pass waits return `output` without running."""
        self._doors[module].output = output

    def run_to_end(self) -> Any:
        """Runs the pass on to its end, and returns its result."""
        if not self.finished:
            self._resume()
        return self.result

    def close(self) -> None:
        """Abandons what has not run yet and takes off everything the pass attached.

        Where an interrupt cut it short, another call does the rest.
        """
        try:
            if self._greenlet is not None and not self._greenlet.dead:
                self._switch(_abandon)
        finally:
            remove_all(self._attachments)
        self._open.clear()
        self._doors.clear()
        self.stop = None
        self.result = None
        self._call = None
        self._greenlet = None

    def _keep_open(self, modules: Iterable[nn.Module]) -> None:
        """Makes torch look for hooks when these modules exit.

        torch decides at a module's entrance whether it has hooks at all, so one that is attached at its exit while the
        pass waits inside would not be seen.
        """
        for module in modules:
            if module not in self._open:
                self._put_on(Hook(module, partial(_leave_as_it_is), at_entrance=False))
                self._open.add(module)

    def _put_on(self, attachment: Attachment) -> None:
        self._attachments.append(attachment)
        attachment.put_on()

    def _enter(self, module: nn.Module, passing: Any) -> Any:
        """Called at the entrance of a module behind its stream, where the entrance is asked for meanwhile."""
        wait = self._entrances.pop(module, None)
        return None if wait is None else wait(passing)

    def _wait(self, event: Event, passing: Any) -> Any:
        """Called in the pass: gives way to the body until it resumes the pass."""
        stop = Stop(event, passing)
        running = greenlet.getcurrent()
        assert running.parent is not None
        running.parent.switch(stop)
        return stop.passing

    def _resume(self) -> None:
        if threading.get_ident() != self._thread:
            raise NoTraceError(
                "this trace was opened in another thread. A trace belongs to the thread that opened it: open one of "
                "its own in each thread; they can trace the same model at the same time."
            )
        if self._greenlet is None:
            self._greenlet = greenlet.greenlet(self._run)
            self._greenlet.gr_context = self.context
        elif self._greenlet.dead:
            raise NoTraceError("this pass has ended, so nothing more can be asked of it. Open a new trace.")
        self.stop = None
        self.stop = self._switch(_run_on)

    def _run(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        self.result = call()
        self.finished = True

    def _switch(self, enter: Callable[[greenlet.greenlet], Any]) -> Any:
        running = self._greenlet
        assert running is not None
        running.parent = greenlet.getcurrent()
        switch = Switch(self._guard)
        tracer = _one_stack_tracer()
        try:
            try:
                if tracer is not None:
                    sys.settrace(None)
                switch.there(self._state)
                return self._entered(enter, running)
            finally:
                self._come_back(switch, tracer)
        except BaseException:
            self._come_back(switch, tracer)  # once more, where an interrupt has cut it short
            raise

    def _entered(self, enter: Callable[[greenlet.greenlet], Any], running: greenlet.greenlet) -> Any:
        """Enters the pass, and notes the settings at which it waits next."""
        try:
            return enter(running)
        finally:
            self._state = torch_state()

    def _come_back(self, switch: Switch, tracer: Any) -> None:
        """Puts the body's settings in force again."""
        switch.back()
        self._guard = switch.guard
        if tracer is not None:
            sys.settrace(tracer)


def _run_on(running: greenlet.greenlet) -> Any:
    returned = running.switch()
    if isinstance(returned, greenlet.GreenletExit):
        raise returned  # the model's or a user's own: greenlet takes it for a result
    return returned


def _abandon(running: greenlet.greenlet) -> Any:
    return running.throw(greenlet.GreenletExit)


def _one_stack_tracer() -> Any:
    """The tracer in force, if it is coverage's and takes all that runs in a thread for one stack.

    It would lose lines of the body after a switch, so it sees the body alone. With `concurrency = ["greenlet",
    "thread"]` in its configuration it tells stacks apart, and sees the pass too.
    """
    tracer: Any = sys.gettrace()
    owner = getattr(tracer, "__self__", tracer)
    return tracer if getattr(owner, "concur_id_func", tracer) is None else None


def _leave_as_it_is(_module: nn.Module, _args: Any, _output: Any) -> None:
    """A hook that changes nothing."""
