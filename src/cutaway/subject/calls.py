"""The calls inside a module's forward, and inside the functions that these call: where `.source` looks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cutaway.errors import OrderError, UnavailableValueError
from cutaway.sites import OperationMoment
from cutaway.subject.subject import Subject
from cutaway.subject.survey import BATCH, SEQ, meta_inputs
from cutaway.tracing import Attachment, attach, meta_twin, remove_all
from cutaway.tracing.source import FunctionSource, innermost, source_of


def calls_in(subject: Subject, module_path: str, path: str, chain: tuple[str, ...] = ()) -> FunctionSource:
    """The source of a module's forward, or of the function that the last call of `chain` calls, and the calls in it.

    Raises:
        UnavailableValueError: it is not written in Python, or what is called is a module.
        OrderError: a pass of this model does not come by the call.
    """
    function: Any = type(subject.modules[module_path]).forward
    if chain:
        function = _called(subject, module_path, chain)
    if isinstance(function, nn.Module):
        raise UnavailableValueError(
            f"`{path}`: what is called is a module, {type(function).__name__}. Ask that module for its `.source`."
        )
    return source_of(innermost(function))


def _called(subject: Subject, module_path: str, chain: tuple[str, ...]) -> Any:
    """The function that a call calls, found by running the model's twin on the meta device."""
    twin = meta_twin(subject.hf)
    found: list[Any] = []

    def note(function: Any) -> None:
        found.append(function)

    module = twin.get_submodule(module_path)
    noted: list[Attachment] = []
    grad = torch.is_grad_enabled()
    try:
        try:
            attach(module, OperationMoment(chain, "function"), note, lambda: True, noted)
            with torch.no_grad():
                twin(**meta_inputs(BATCH, SEQ))
        finally:
            remove_all(noted)
    except BaseException:
        torch.set_grad_enabled(grad)
        remove_all(noted)  # once more, where an interrupt has cut it short
        raise
    if not found:
        raise OrderError(f"a pass of this model does not come by `{'.'.join(chain)}` in {module_path}.")
    return found[0]
