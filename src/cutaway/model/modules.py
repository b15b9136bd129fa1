"""Any module of a model as a thing whose input, output and parts can be asked for."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from cutaway.errors import OrientationWarning, UnknownLayerError, UnknownValueError
from cutaway.inspection import printout
from cutaway.passes.asked import Asked, raise_again
from cutaway.passes.source import Act, SourceHost, trace_for
from cutaway.passes.trace import Trace
from cutaway.subject.address import Address
from cutaway.subject.binding import NATIVE_NAMES
from cutaway.subject.subject import Subject
from cutaway.vocabulary import MODULES
from cutaway.vocabulary.elsewhere import near
from cutaway.vocabulary.numbers import whole_number

HostAt = Callable[[Subject, str, str], Any]
"""What makes the host of a module, by the module's own path and its path in standard names."""


class ModuleHost:
    """Any module of a model, at its path."""

    _subject: Subject
    _module_path: str
    _path: str
    _host_at: HostAt

    def __init__(self, subject: Subject, module_path: str, path: str, host_at: HostAt) -> None:
        object.__setattr__(self, "_subject", subject)
        object.__setattr__(self, "_module_path", module_path)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_host_at", host_at)

    @property
    def module(self) -> nn.Module:
        """The torch module itself."""
        return self._subject.modules[self._module_path]

    @property
    def source(self) -> SourceHost:
        """The calls inside the module's forward, each with `.input`, `.inputs` and `.output`; prints as the source."""
        return SourceHost(self._subject, self._module_path, join(self._path, "source"), ())

    @Asked
    def input(self) -> Any:
        """The module's first argument."""
        return self._trace("input").ask(self._native("input"))

    @Asked
    def inputs(self) -> Any:
        """The module's arguments, `(args, kwargs)`."""
        return self._trace("inputs").ask(self._native("inputs"))

    @Asked
    def output(self) -> Any:
        """What the module returns, as it returns it: a tensor, or a tuple or another container."""
        return self._trace("output").ask(self._native("output"))

    def __getattr__(self, name: str) -> Any:
        raise_again()
        if name.startswith("_"):
            raise AttributeError(name)
        return self._attribute(name)

    def __setattr__(self, name: str, new: Any) -> None:
        if name not in NATIVE_NAMES:
            raise self._unassignable(name)
        self._trace(name, "edit").edit(self._native(name), new)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module, outside any pass under way."""
        return self.module(*args, **kwargs)

    def skip(self, output: Any = None) -> None:
        """Passes over the module in the trace under way: it does not run, and `output` is its result.

        Args:
            output: a tensor of the shape of the module's result; by default the module's first argument. Where the
                module returns several things, it is the first, and the others are None.

        Raises:
            NoTraceError: outside a trace.
            LateEditError: the pass is already past the module's entrance.
            ShapeError, DtypeError, DeviceError: `output` is not like what the module would have returned.
        """
        self._trace("skip()", "skip").skip(self._native("input"), self._native("output"), output)

    def __repr__(self) -> str:
        return f"<{self._path} of {self._subject.name}: {printout.module_line(self.module)}>"

    def __str__(self) -> str:
        return printout.part_text(self._subject, self._module_path)

    def _repr_html_(self) -> str:
        return printout.part_html(self._subject, self._module_path)

    def __dir__(self) -> list[str]:
        own = [name for name in dir(type(self)) if not name.startswith("_")]
        if not self._is_of_a_model:  # all that a host of any model may have
            declared = {name for of in type(self).__mro__ for name in inspect.get_annotations(of)}
            return sorted({*own, *(name for name in declared if not name.startswith("_"))})
        children = [name for name, _ in self.module.named_children()]
        parameters = [name for name, _ in self.module.named_parameters(recurse=False)]
        return sorted({*own, *filter(str.isidentifier, children), *parameters})

    @property
    def _is_of_a_model(self) -> bool:
        """Whether it was made as hosts are, and is no completer's stand-in, which has the class alone."""
        return "_subject" in self.__dict__

    def _native(self, name: str) -> Address:
        return self._subject.native_address(self._module_path, self._path, name)

    def _attribute(self, name: str) -> Any:
        found = getattr(self.module, name, _MISSING)
        if found is _MISSING:
            raise self._unknown(name)
        if isinstance(found, nn.Module) and name in self.module._modules:
            return self._child(name)
        if name == "weight":
            self._tell_orientation()
        return self._staying_here(found) if inspect.ismethod(found) else found

    def _tell_orientation(self) -> None:
        """Warns where a standard name stands for a module whose weight lies the other way than a linear layer's."""
        standard, own = self._path.rpartition(".")[2], self._module_path.rpartition(".")[2]
        if standard != own and standard in MODULES and type(self.module).__name__ == "Conv1D":
            warnings.warn(
                f"`{self._path}.weight` is a Conv1D's, [in out], and that of a Linear, as other families have it, is "
                f"[out in]. To treat both alike, transpose it: `.weight.T`. Under its own name, `{own}`, it comes "
                "without this word.",
                OrientationWarning,
                stacklevel=4,
            )

    def _staying_here(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the module; where it returns the module, as `to` and `eval` do, the host in its place."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            returned = method(*args, **kwargs)
            return self if returned is self.module else returned

        return call

    def _child(self, name: str) -> ModuleHost:
        return self._host_at(self._subject, join(self._module_path, name), join(self._path, name))

    def _trace(self, name: str, act: Act = "ask for") -> Trace:
        return trace_for(self._subject, join(self._path, name), act)

    def _unknown(self, name: str) -> Exception:
        there = [*NATIVE_NAMES, *(child for child, _ in self.module.named_children())]
        there += [parameter for parameter, _ in self.module.named_parameters(recurse=False)]
        return UnknownValueError(
            f"`{self._path or self._subject.name}` ({type(self.module).__name__}) has nothing called `{name}`."
            f"{near(name, there)} It has: {', '.join(there)}."
        )

    def _unassignable(self, name: str) -> Exception:
        """Why a name that is no value cannot be assigned."""
        path = join(self._path or "model", name)
        found = None if name.startswith("_") else getattr(type(self), name, _MISSING)
        if found is not _MISSING:
            return UnknownValueError(f"`{path}` is no value of a pass, so it cannot be assigned.")
        found = self._attribute(name)  # raises where nothing is called so
        if isinstance(found, ModuleHost):
            return UnknownValueError(
                f"`{path}` is a module and no value of a pass, so it cannot be assigned here. To edit what it returns, "
                f"assign `{path}.output`. To put another module in its place, do so in the transformers model "
                "(`model.hf`), and open that again."
            )
        what = "a parameter" if isinstance(found, nn.Parameter) else "the model's own"
        return UnknownValueError(
            f"`{path}` is {what} and no value of a pass, so it cannot be assigned here. Change the module itself, "
            f"`{self._path or 'model'}.module`."
        )


class ModulesHost(ModuleHost):
    """Several modules in a row, by their number."""

    def __getitem__(self, index: Any) -> Any:
        there = range(len(self))
        if isinstance(index, slice):
            return [self[i] for i in there[index]]
        number = whole_number(index, "what is in brackets")
        try:
            return self._child(str(there[number]))
        except IndexError:
            raise UnknownLayerError(f"`{self._path}` has {len(there)} modules, and none at {number}.") from None

    def __len__(self) -> int:
        return len(self.module)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


def join(path: str, name: str) -> str:
    """A name's path below another; the model's own is empty."""
    return f"{path}.{name}" if path else name


_MISSING = object()
