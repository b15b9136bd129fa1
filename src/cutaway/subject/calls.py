"""The calls inside a module's forward, and inside the functions that these call: where `.source` looks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cutaway.errors import OrderError, UnavailableValueError
from cutaway.sites import OperationMoment
from cutaway.subject.subject import Subject
from cutaway.tracing import Attachment, attach, remove_all
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
    """The function that a call calls, found by running what the survey ran."""
    found: list[Any] = []
    noted: list[Attachment] = []

    def note(function: Any) -> None:
        found.append(function)

    grad = torch.is_grad_enabled()
    try:
        with subject.survey.trial.open(subject.hf, subject.input_device) as (model, run):
            try:
                module = model.get_submodule(module_path)
                attach(module, OperationMoment(chain, "function"), note, lambda: True, noted)
                run()
            finally:
                remove_all(noted)
    except BaseException:
        torch.set_grad_enabled(grad)
        remove_all(noted)  # once more, where an interrupt has cut it short
        raise
    if not found:
        raise OrderError(f"a pass of this model does not come by `{'.'.join(chain)}` in {module_path}.")
    return found[0]
