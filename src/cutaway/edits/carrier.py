"""A transformers model that carries edits: every plain call of it, and every `generate` of it, has them made.

It is another object of the same class over the same modules, so that a pipeline, a trainer's evaluation or any code
that takes a transformers model can be given it. Its forward calls the model itself with the edits in force.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from cutaway.edits.application import Application
from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.reach import Reach
from cutaway.errors import CutawayError
from cutaway.subject.subject import Subject
from cutaway.tracing.twin import STANDS_FOR


class Carrier:
    """Edits, and the model whose passes they are made in."""

    def __init__(self, subject: Subject, edits: Sequence[FunctionEdit]) -> None:
        self.hf = subject.hf
        self._subject = subject
        self._edits = edits
        self._in_force: ContextVar[bool] = ContextVar("cutaway_carried", default=False)

    def __deepcopy__(self, memo: Any) -> Any:
        raise CutawayError(
            "a transformers model that carries edits is not copied, since its edits are for the modules that it has. "
            "Copy the model that was edited, and edit the copy."
        )

    @contextmanager
    def in_force(self) -> Generator[None]:
        """Has the edits made in what the model runs in this context; once, where a call is made inside another."""
        if self._in_force.get():
            yield
            return
        reach = Reach(self)
        applied = Application(self._subject, self._edits, reach.holds)

        def close() -> None:
            self._in_force.set(False)
            reach.close()
            applied.remove()

        try:
            try:
                self._in_force.set(True)
                applied.put_on()
                reach.open()
                yield
                applied.warn_of_idle(to_the_end=True)
            finally:
                close()
        except BaseException:
            close()  # once more, where an interrupt has cut it short
            raise


def carrying(subject: Subject, edits: Sequence[FunctionEdit]) -> PreTrainedModel:
    """The transformers model with edits made in its every call.

    Weights, modules and configs are the model's own; hooks that are put on the model that is returned are not.
    """
    model = object.__new__(_carrying_class(type(subject.hf)))
    nn.Module.__init__(model)
    fresh = {name: value for name, value in vars(model).items() if "hooks" in name}
    vars(model).update({name: value for name, value in vars(subject.hf).items() if name not in _OF_ONE_OBJECT})
    vars(model).update(fresh)
    vars(model)[STANDS_FOR] = Carrier(subject, edits)
    return model


_OF_ONE_OBJECT = {"forward", "generate", "generation_config", "_hf_hook", "_old_forward", "_compiled_call_impl"}
"""What accelerate and others put on the one object, and what is asked of it."""


@lru_cache(maxsize=64)
def _carrying_class(model: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """A subclass that is told from its parent by nothing but what it does."""

    @functools.wraps(model.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.__dict__[STANDS_FOR].in_force():
            return self.__dict__[STANDS_FOR].hf(*args, **kwargs)

    @functools.wraps(model.generate)  # type: ignore[attr-defined]
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.__dict__[STANDS_FOR].in_force():
            return self.__dict__[STANDS_FOR].hf.generate(*args, **kwargs)

    def train(self: Any, mode: bool = True) -> Any:
        self.__dict__[STANDS_FOR].hf.train(mode)
        return nn.Module.train(self, mode)

    def generation_config(self: Any) -> Any:
        return self.__dict__[STANDS_FOR].hf.generation_config

    def set_generation_config(self: Any, config: Any) -> None:
        self.__dict__[STANDS_FOR].hf.generation_config = config

    names = {
        "__module__": model.__module__,
        "__qualname__": model.__qualname__,
        "__doc__": model.__doc__,
        "forward": forward,
        "generate": generate,
        "train": train,
        "generation_config": property(generation_config, set_generation_config),
    }
    return type(model.__name__, (model,), names)
