"""A trace on the meta device: shapes and dtypes, no weights, no compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from cutaway.edits.application import Application
from cutaway.edits.function_edit import FunctionEdit
from cutaway.errors import UnavailableValueError
from cutaway.passes.trace import Trace
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject
from cutaway.tracing import ForwardPass
from cutaway.tracing.torch_state import take_off_function_mode
from cutaway.tracing.trial import runnable_twin


class _OnMeta(TorchFunctionMode):
    """Takes the body's own tensors to the meta device where it computes with what a scan hands out."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in tree_leaves((args, kwargs))):
            args, kwargs = _to_meta(args), _to_meta(kwargs)
        return func(*args, **kwargs)


def _to_meta(thing: Any) -> Any:
    def move(leaf: Any) -> Any:
        return leaf.to("meta") if isinstance(leaf, Tensor) else leaf

    return tree_map(move, thing)


class Scan(Trace):
    """Runs the model's twin on the meta device in the model's stead. Use it by `with model.scan(prompt):`."""

    def __init__(self, subject: Subject, inputs: Mapping[str, Any], *, edits: Sequence[FunctionEdit] = ()) -> None:
        on_meta = {name: v.to("meta") if isinstance(v, Tensor) else v for name, v in inputs.items()}
        super().__init__(subject, on_meta, edits=edits)
        if not subject.survey.trial.of_twin:
            raise UnavailableValueError(
                f"{subject.name} cannot be scanned: its layers do not run on the meta device. A trace has the same "
                "values, with their numbers: `model.trace(prompt)`."
            )
        self._twin = runnable_twin(subject.hf)
        self._arithmetic = _OnMeta()
        self._modules: dict[str, nn.Module] = dict(self._twin.named_modules(remove_duplicate=False))

    def _what(self) -> str:
        return f"{super()._what()}, shapes alone"

    @property
    def _root(self) -> nn.Module:
        return self._twin

    def _prepare(self) -> None:
        """Nothing is to be loaded."""

    def _open_pass(self) -> ForwardPass:
        batch, seq = self.call.tokens.shape[:2]
        made = self._subject.survey.trial.inputs(batch, seq, "meta")
        if self.call.ids is None:
            del made["input_ids"]
        given = {name: value for name, value in self._inputs.items() if name != "attention_mask"}
        return ForwardPass(partial(self._twin, **{**given, **made}), grad=False)

    def _watch(self, running: ForwardPass) -> None:
        running.follow(self._subject.occurrences(running.answers, self._twin))
        running.note_batch(self._subject.batch_note(running.answers, self._twin))

    def _apply(self, running: ForwardPass) -> Application:
        edits = [replace(edit, address=self._on_twin(edit.address)) for edit in self._edits]
        return Application(self._subject, edits, running.answers, self._twin)

    def _set_up(self, running: ForwardPass) -> None:
        super()._set_up(running)
        self._arithmetic.__enter__()

    def _close(self) -> None:
        take_off_function_mode(self._arithmetic)
        super()._close()

    def ask(self, address: Address) -> Any:
        """The value's shape and dtype: a tensor on the meta device."""
        if address.path == "attention_mask":
            return self._inputs["attention_mask"]
        return super().ask(self._on_twin(address))

    def edit(self, address: Address, new: Any) -> None:
        """Puts a tensor on the meta device in a value's place."""
        super().edit(self._on_twin(address), _to_meta(new))

    def skip(self, entrance: Address, leave: Address, output: Any) -> None:
        """Passes over a module."""
        super().skip(self._on_twin(entrance), leave, _to_meta(output))

    def _on_twin(self, address: Address) -> Address:
        module = self._modules[address.module_path]
        if address.module is module:
            return address
        parts = address.module_path.split(".")
        paths = [".".join(parts[:i]) for i in range(len(parts))]
        within = tuple(self._modules[path] for path in paths if not isinstance(self._modules[path], nn.ModuleList))
        return replace(address, module=module, within=within)
