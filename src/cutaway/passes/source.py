"""`.source`: the calls inside a module's forward, as hosts.

>>> print(model.layers[1].self_attn.source)
>>> with model.trace("def add(a, b):"):
...     queries = model.layers[1].self_attn.source.self_q_proj_0.output
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from cutaway.errors import NoTraceError, UnknownValueError
from cutaway.passes.trace import Trace, active_trace
from cutaway.subject.binding import NATIVE_NAMES
from cutaway.subject.calls import calls_in
from cutaway.subject.subject import Subject
from cutaway.tracing.source import FunctionSource, Operation
from cutaway.vocabulary.elsewhere import near


class SourceHost:
    """The calls inside one function: a module's forward, or a function that it calls.

    Attributes and keys are the calls' names; iterating gives them in the order of evaluation, and `print` shows the
    source with the names beside it.
    """

    def __init__(self, subject: Subject, module_path: str, path: str, chain: tuple[str, ...]) -> None:
        self._subject = subject
        self._module_path = module_path
        self._path = path
        self._chain = chain

    @property
    def function(self) -> FunctionSource:
        """The function's source and calls.

        Raises:
            UnavailableValueError: it is not written in Python, or this model does not come by it.
        """
        return self._find()

    def _find(self) -> FunctionSource:
        return calls_in(self._subject, self._module_path, self._path, self._chain)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The calls, in the order of evaluation, each with its name, line and text."""
        return self._find().operations

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __getattr__(self, name: str) -> OperationHost:
        if name.startswith("_"):
            raise AttributeError(name)
        self._find()  # where a property of this class has raised, Python asks here, and this raises the same again
        return self[name]

    def __getitem__(self, name: str) -> OperationHost:
        names = [operation.name for operation in self.operations]
        if name not in names:
            hint = near(name, names) or f" There are: {', '.join(names)}."
            raise UnknownValueError(f"`{self._path}` has no call named `{name}`.{hint}")
        return OperationHost(self._subject, self._module_path, f"{self._path}.{name}", (*self._chain, name))

    def __dir__(self) -> list[str]:
        return sorted([*object.__dir__(self), *(operation.name for operation in self.operations)])

    def __repr__(self) -> str:
        return self._find().annotated()


class OperationHost:
    """One call inside a forward: its `input`, `inputs` and `output`, and the `source` of what it calls."""

    _subject: Subject
    _module_path: str
    _path: str
    _chain: tuple[str, ...]

    def __init__(self, subject: Subject, module_path: str, path: str, chain: tuple[str, ...]) -> None:
        for name, value in (("_subject", subject), ("_module_path", module_path), ("_path", path), ("_chain", chain)):
            object.__setattr__(self, name, value)

    @property
    def source(self) -> SourceHost:
        """The calls inside the function that this call calls."""
        return SourceHost(self._subject, self._module_path, f"{self._path}.source", self._chain)

    def __getattr__(self, name: str) -> Any:
        self._must_be_native(name)
        address = self._subject.operation_address(self._module_path, self._path, self._chain, name)
        return trace_for(self._subject, address.path).ask(address)

    def __setattr__(self, name: str, new: Any) -> None:
        self._must_be_native(name)
        address = self._subject.operation_address(self._module_path, self._path, self._chain, name)
        trace_for(self._subject, address.path, "edit").edit(address, new)

    def __dir__(self) -> list[str]:
        return sorted([*object.__dir__(self), *NATIVE_NAMES])

    def __repr__(self) -> str:
        return f"<call {self._path}>"

    def _must_be_native(self, name: str) -> None:
        if name not in NATIVE_NAMES:
            hint = near(name, [*NATIVE_NAMES, "source"])
            raise UnknownValueError(f"`{self._path}` has {', '.join(NATIVE_NAMES)} and source, and no `{name}`.{hint}")


Act = Literal["ask for", "edit", "skip"]
"""What a trace is wanted for."""

_WITHOUT_A_TRACE: dict[Act, str] = {
    "ask for": "`{path}` exists only while the model runs. Ask for it inside `with model.trace(prompt):`, or read it "
    "at once: `model.read(prompt, '{path}')`.",
    "edit": "`{path}` exists only while the model runs. Edit it inside `with model.trace(prompt):`, or give a function "
    "for it: `with model.hooks({{'{path}': function}}):`, or `model.edited({{…}})` for good.",
    "skip": "a module is passed over while the model runs: say `{path}` inside `with model.trace(prompt):`.",
}


def trace_for(subject: Subject, path: str, act: Act = "ask for") -> Trace:
    """The trace under way.

    Raises:
        NoTraceError: there is none; the message says what to do instead.
    """
    trace = active_trace(subject)
    if trace is None:
        raise NoTraceError(_WITHOUT_A_TRACE[act].format(path=path))
    return trace
