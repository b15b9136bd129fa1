"""A trace: the with-block in which a model's values can be asked for and edited.

Asking for a value runs the pass up to it. The trace knows where the pass waits, what was read before, and by the
model's survey which values are already behind; it refuses what could have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, cast

from torch import Tensor, nn

from cutaway.edits.application import Application
from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.picking import index_of
from cutaway.edits.positions import Positions, as_choice
from cutaway.edits.rows import ModelCall, Rows, UnderWay, under_way
from cutaway.edits.told import edits_told
from cutaway.errors import CutawayError, LateEditError, NoTraceError, OrderError, ReadOnlyError
from cutaway.passes import open_traces
from cutaway.passes.asked import raise_again
from cutaway.passes.callers import CallersCache, in_mode_of, with_own_tensors
from cutaway.passes.embedded import refuse_without_ids
from cutaway.passes.explained import explain
from cutaway.passes.gradients import (
    explain_missing_graph,
    in_graph,
    refuse_without_autograd,
    refuse_without_record,
    start_graph,
)
from cutaway.passes.handed_out import HandedOut
from cutaway.passes.late_edits import LeftBehind, tensors_in
from cutaway.passes.order import never_reached, refuse_if_passed
from cutaway.passes.skipping import in_its_stead
from cutaway.passes.told import asked_told, prompt_told, standing_told, told, unknown
from cutaway.sites import OperationMoment
from cutaway.sites.slots import Call
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject
from cutaway.tracing import Attachment, Event, ForwardPass, Stop, remove_all
from cutaway.tracing.block import Block
from cutaway.tracing.checkpointing import checkpoint_around, remember
from cutaway.vocabulary import VALUES, ValuePath


class Trace(Block):
    """A forward pass under way, and the values read of it. Use it by `with model.trace(prompt):`."""

    def __init__(
        self, subject: Subject, inputs: Mapping[str, Any], *, edits: Sequence[FunctionEdit] = (), grad: bool = False
    ) -> None:
        self._subject = subject
        self._inputs: Mapping[str, Any] = with_own_tensors(inputs)
        self._edits = edits
        self._grad = grad
        self.opened_by: list[FrameType] = []
        self._pass: ForwardPass | None = None
        self._applied: Application | None = None
        self._under_way = UnderWay()
        self._here: Address | None = None
        self._read: dict[str, Any] = {}
        self._asked: list[str] = []
        self._begun = False
        self._handed_out = HandedOut(grad=grad)
        self._behind = LeftBehind()
        self._sourced: set[nn.Module] = set()
        self._cache: CallersCache | None = None
        self._remembered: list[Attachment] = []
        self._around: Any = None

    def _refuse_again(self) -> None:
        raise CutawayError("this trace is open already. Open another: `with model.trace(prompt):`.")

    def _enter(self) -> None:
        self._prepare()
        if self._grad:
            refuse_without_autograd(self._subject)
        self._cache = CallersCache.among(self._given())
        with in_mode_of(self._cache):
            self._pass = self._open_pass()
        self._begun = True
        self._asked.clear()
        self._set_up(self._pass)
        open_traces.add(self)

    def _leave(self, error: BaseException | None) -> Callable[[], None] | None:
        if error is None:
            self._refuse_late_edits_in_place()
            self._let_finish()
            if self._applied is not None:
                self._applied.warn_of_idle(to_the_end=self._running().finished)
            self._cache = None  # it is advanced, and not to be put back
        explain(error)
        return None if self._grad else partial(explain_missing_graph, error)

    def __repr__(self) -> str:
        standing = standing_told(self._pass, self._here, begun=self._begun)
        return told(self._what(), prompt_told(self._inputs), standing, asked_told(self._asked))

    def _what(self) -> str:
        """What this is, of which model."""
        edits = f", edited: {edits_told(self._edits, self._subject.sizes['num_layers'])}" if self._edits else ""
        return f"{type(self).__name__.lower()} of {self._subject.name}{edits}{', with gradients' * self._grad}"

    def __getattr__(self, name: str) -> Any:
        raise_again()
        if name.startswith("_"):
            raise AttributeError(name)
        raise unknown(f"a {type(self).__name__.lower()}", name, dir(type(self)))

    @property
    def subject(self) -> Subject:
        """The model that is traced."""
        return self._subject

    @property
    def is_open(self) -> bool:
        """Whether the block has been entered and not been left."""
        return self._pass is not None

    @property
    def _root(self) -> nn.Module:
        """The model that runs."""
        return self._subject.hf

    def _prepare(self) -> None:
        self._subject.bring_weights()
        self._subject.make_survey()

    def _open_pass(self) -> ForwardPass:
        return ForwardPass(partial(self._subject.hf, **self._inputs), grad=self._grad)

    def _watch(self, running: ForwardPass) -> None:
        """Has the model run so that every call in it can be seen, and told from others of the same module."""
        running.keep(self._subject.as_written())
        running.follow(self._subject.occurrences(running.answers))
        running.note_batch(self._subject.batch_note(running.answers))

    def _apply(self, running: ForwardPass) -> Application:
        return Application(self._subject, self._edits, running.answers)

    def _given(self) -> Mapping[str, Any]:
        """Where the caller's cache is, if one was given."""
        return self._inputs

    def _set_up(self, running: ForwardPass) -> None:
        """Attaches to a pass that is open what is to be served in it."""
        running.context.run(under_way.set, self._under_way)
        self._watch(running)
        if self._edits:
            self._applied = self._apply(running)
            self._applied.put_on()
        if self._grad:
            self._around = checkpoint_around()
            remember(self._subject.modules.values(), running.answers, self._remembered)
            start_graph(self._subject, running)

    def _let_finish(self) -> None:
        """Lets a pass return that has nothing left to run, or whose cache is to be advanced."""
        running = self._running()
        at_end = running.stop is not None and running.stop.event == (self._subject.hf, "exit")
        if at_end or self._cache is not None:
            if running.stop is not None:
                self._handed_out.relink(running.stop)
            running.run_to_end()

    def _close(self) -> None:
        """Abandons what has not run, takes everything off the model, and puts back the cache of a pass that was left.

        Another call does what an interrupt has left of it.
        """
        try:
            if self._pass is not None:
                self._pass.close()
        finally:
            if self._applied is not None:
                self._applied.remove()
            remove_all(self._remembered)
        if self._cache is not None:
            self._cache.put_back()
        open_traces.discard(self)
        self._pass = self._applied = self._cache = None
        self._here = self._under_way.call = None
        self._read.clear()
        self._handed_out.clear()
        self._behind.clear()
        self._sourced.clear()

    @property
    def call(self) -> ModelCall:
        """The call of the model that the trace runs, as the model is given it: edits are included."""
        here = self._here
        stop = self._pass.stop if self._pass is not None else None
        if stop is not None and here is not None and here.module_path == "" and here.moment == "enter":
            return ModelCall.of(stop.passing)
        return self._under_way.call or ModelCall.of(Call((), dict(self._inputs)))

    def at(self, positions: Positions) -> tuple[Tensor, Tensor]:
        """What a `[batch seq …]` value is indexed by to have its part at these positions, whatever padding the rows
        have.

        >>> with model.trace(prompts) as run:
        ...     last = model.layers[2].layer_output[run.at(-1)]  # [batch hidden_size]: each row's last real token
        ...     model.layers[3].mlp.mlp_output[run.at([0, 1])] = 0

        In a value whose tokens are the third axis, bring them second: `queries.transpose(1, 2)[run.at(-1)]`.

        Args:
            positions: real tokens of each row, as in `model.hooks`.

        Returns:
            the rows' indices and the tokens' places: `[batch]` each for one position, `[batch 1]` and `[batch count]`
            for several.

        Raises:
            InputError: a row has no such position in this pass, or the rows have different numbers of them.
            NoTraceError: the trace is not open.
        """
        choice = as_choice("all" if positions is None else positions)
        rows: Rows = self._running().context.run(Rows.of, self.call, self._root)  # which knows a generation's prompts
        return index_of(choice, rows, VALUES["layer_output"])

    def ask(self, address: Address) -> Any:
        """The value at an address; runs the pass up to it.

        Raises:
            OrderError: the pass is already behind it.
        """
        if address.place in self._read:
            self._note_asked(address)
            return self._read[address.place]
        stop = self._stop_at(address, OrderError)
        if self._grad:
            refuse_without_record(self._running(), address.path, self._around)
        value = self._read[address.place] = self._handed_out.hand_out(address, stop)
        self._note_asked(address)
        return value

    def edit(self, address: Address, new: Any) -> None:
        """Puts `new` in the place of the value at an address; runs the pass up to it.

        Raises:
            LateEditError: the pass is already behind it.
            ReadOnlyError, ShapeError, DtypeError, DeviceError: the value cannot be replaced by `new`.
        """
        address.refuse_unless_writable()
        stop = self._stop_at(address, LateEditError)
        old = self.ask(address)
        if new is old:
            return
        new = address.fit(old, new, move=self._subject.over_devices)
        if self._grad and any(tensor.requires_grad for tensor in tensors_in(old)):
            new = in_graph(new)
        stop.passing = address.write(stop.passing, new)
        for place in self._handed_out.values:
            self._read.pop(place, None)
        self._handed_out.clear()
        self.ask(address)

    def skip(self, entrance: Address, leave: Address, output: Any) -> None:
        """Passes over a module, at its entrance: `output`, or its first argument, is returned in its stead.

        Raises:
            ReadOnlyError: it is the model itself.
            LateEditError: the pass is already past the entrance.
            ShapeError, DtypeError, DeviceError: `output` is not like what the module would have returned.
        """
        if not entrance.module_path:
            raise ReadOnlyError("the model itself cannot be passed over. Skip its layers, or set its `logits`.")
        self._stop_at(entrance, LateEditError)
        output = in_its_stead(self._subject.survey, leave, self.ask(entrance), output)
        self._running().skip(entrance.module, output)

    def _note_asked(self, address: Address) -> None:
        if address.path not in self._asked:
            self._asked.append(address.path)

    def _stop_at(self, address: Address, error: type[OrderError]) -> Stop:
        """Has the pass wait at an address."""
        running = self._running()
        refuse_without_ids(self._subject, address, self.call)
        if not self._waits_at(address):
            if self._here is not None:
                finished, sourced = running.finished, self._sourced
                refuse_if_passed(self._subject, address, self._here, error, finished=finished, sourced=sourced)
            self._run_to(running, address)
        assert running.stop is not None
        return running.stop

    def _running(self) -> ForwardPass:
        if self._pass is None:
            raise NoTraceError("this trace is over, or was never opened. Ask for values inside its with-block.")
        return self._pass

    def _waits_at(self, address: Address) -> bool:
        here = self._here
        return here is not None and here.module_path == address.module_path and here.moment == address.moment

    def _run_to(self, running: ForwardPass, address: Address) -> None:
        self._refuse_late_edits_in_place()
        if running.stop is not None:
            self._handed_out.relink(running.stop)
        self._note_call(running)
        before = self._here
        stop = running.run_to(
            address.module,
            address.moment,
            address.within,
            until=self._limit(),
            skippable=address.moment == "enter" and address.module is not self._subject.hf,
            path=address.module_path,
        )
        if stop is None or stop.event != (address.module, address.moment):
            self._here = self._subject.address(ValuePath("logits", None)) if stop is not None else before
            raise never_reached(address, before)
        if before is not None:
            for thing in self._handed_out.values.values():
                self._behind.add(before.path, thing)
        self._here = address
        if isinstance(address.moment, OperationMoment):
            self._sourced.add(address.module)
        self._handed_out.clear()
        self._behind.note()

    def _note_call(self, running: ForwardPass) -> None:
        """Notes the model's call: when it begins, and when the pass leaves its entrance."""
        if running.started:
            self._under_way.call = self.call
        else:
            running.attach(self._root, "enter", self._under_way.note)

    def _limit(self) -> Event | None:
        """The moment at which the pass under way is over; None where nothing runs after it."""
        return None

    def _refuse_late_edits_in_place(self) -> None:
        """Raises where the body has written into a tensor that the pass has left."""
        stop = self._pass.stop if self._pass is not None else None
        self._behind.refuse_edited(stop.passing if stop is not None else None, self._here)


def active_trace(subject: Subject) -> Trace | None:
    """The trace of this model that the line of code under way means.

    Raises:
        NoTraceError: several are open, and the line is in the block of none.
    """
    return cast("Trace | None", open_traces.meant(subject))
