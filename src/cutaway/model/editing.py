"""A model that is edited: by functions for the length of a block, or as a second model that has its edits for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from torch import Tensor
from transformers import PreTrainedModel

from cutaway.edits.carrier import carrying
from cutaway.edits.function_edit import FunctionEdit, ValueFunction
from cutaway.edits.function_hooks import FunctionHooks
from cutaway.edits.positions import Choice, Positions, as_choice, of_step
from cutaway.edits.steering import layer_numbers, steering
from cutaway.edits.told import edits_told
from cutaway.errors import InputError
from cutaway.inspection import printout
from cutaway.model.hosts import ModelHost
from cutaway.model.inputs import with_known_arguments
from cutaway.subject.names import addresses, pick
from cutaway.subject.subject import Subject
from cutaway.vocabulary import VALUES
from cutaway.vocabulary.paths import Selector


class EditableModel(ModelHost):
    """A model, the edits that are made in its every pass, and what makes more."""

    _edits: tuple[FunctionEdit, ...]
    """Made in every pass that is opened through this model."""
    _carrier: PreTrainedModel | None

    def __init__(self, subject: Subject, edits: tuple[FunctionEdit, ...] = ()) -> None:
        super().__init__(subject)
        object.__setattr__(self, "_edits", edits)
        object.__setattr__(self, "_carrier", None)

    @property
    def hf(self) -> PreTrainedModel:
        """The transformers model, unchanged; of an edited model, one that carries the edits into every call of it."""
        if not self._edits:
            return self._subject.hf
        if self._carrier is None:
            object.__setattr__(self, "_carrier", carrying(self._subject, self._edits))
        assert self._carrier is not None
        return self._carrier

    @with_known_arguments
    def hooks(
        self, functions: Mapping[Selector, ValueFunction], *, positions: Positions = None, step: int | None = None
    ) -> FunctionHooks:
        """A with-block for whose length functions are applied to values, inside traces and generations too.

        >>> with model.hooks({"layers.*.mlp.mlp_output": lambda value: value * 0.5}):
        ...     model.read("def add(a, b):", "next_token_probs")

        They act in the context that opens the block, in Python's sense (`contextvars`), and in no other: in
        `asyncio.to_thread` and in tasks that are started inside, and not in other tasks, nor in a thread or an executor
        unless the context is carried there: `Thread(target=contextvars.copy_context().run, args=(function,))`. A
        generator has no context of its own: an edit that it holds is in force for its caller while it waits.

        Args:
            functions: by name, as in `read`, a function that is given the value, and edits it in place or returns what
                is to stand in its place; None leaves it.
            positions: the tokens at which the functions count, by their place in the row's whole sequence, padding not
                counted on either side, which is the same with and without a cache: "prompt", "new" (generated ones), a
                number, several, a slice, or several for each row, as `positions()` gives them; a negative number counts
                from the end of the row's prompt. By default all. The function is given the whole value all the same. In
                a loop of your own over `model.hf`, the first pass, which has no cache, is the prompt.
            step: the step of a generation whose new tokens alone count; 0 is the prompt.

        Raises:
            UnknownValueError, UnavailableValueError: as in `read`.
            ReadOnlyError: a function is given for a value that cannot be edited.
            InputError: these are no positions, or no step.
            CutawayError: on leaving the block, where a function never acted: it was not called, the model did not run
                or ran out of reach, or none of its positions came. The message says which it was.
        """
        return FunctionHooks(self._subject, self._function_edits(functions, positions, step))

    @with_known_arguments
    def editing(
        self, functions: Mapping[Selector, ValueFunction], *, positions: Positions = None, step: int | None = None
    ) -> FunctionHooks:
        """As `hooks`, for edits that stay over many traces and generations.

        It is no fault if the model is not run, or is left before a function was called. It is one, as in `hooks`, if it
        ran out of reach alone, or if a function was called and its positions never came.
        """
        return FunctionHooks(self._subject, self._function_edits(functions, positions, step), may_be_left_out=True)

    @with_known_arguments
    def edited(
        self, functions: Mapping[Selector, ValueFunction], *, positions: Positions = None, step: int | None = None
    ) -> Self:
        """A second model with the same weights, whose every trace, generation and reading has these edits made in it.

        The original is untouched, and its passes are not edited. Arguments are those of `hooks`. The edits belong to
        the second model's passes, in whatever context these are. Its `hf` is a transformers model that carries them,
        into plain calls, its own `generate`, and whatever is given it, as a pipeline.

        Warns:
            IdleEditWarning: in a pass, none of an edit's positions came, as "new" in a reading; or the pass ran to its
                end and did not come by.
        """
        self._subject.bring_weights()
        view = object.__new__(type(self))
        edits = (*self._edits, *self._function_edits(functions, positions, step))
        EditableModel.__init__(view, self._subject.twin(), edits)
        return view

    @with_known_arguments
    def steer(
        self,
        layers: int | Sequence[int] | slice | str,
        vector: Tensor,
        factor: float = 1.0,
        positions: Positions = None,
    ) -> FunctionHooks:
        """A with-block in which `factor * vector` is added to the stream that leaves these layers.

        Args:
            layers: a layer's number, several, or a slice; negative ones count from the end. Or a name, as in `read`, of
                values that are streams: `"layers.*.self_attn.attention_output"`.
            vector: `[hidden_size]` for all of them, or `[layers hidden_size]`, one for each in their order; it is taken
                to the stream's dtype and device. For another at each position, give `hooks` a function.
            factor: what it is multiplied by: a number, or a tensor of one.
            positions: as in `hooks`.

        Raises:
            InputError: the vector is no tensor, no layer is given, or one twice with a vector each.
            IndexError: there is no such layer.
            ShapeError: the vector is neither one nor one a layer.
            CutawayError: on leaving the block, as in `hooks`.
        """
        by_name = isinstance(layers, str) and not layers.lstrip("-").isdigit()
        if by_name:
            paths = self._streams(str(layers))
        else:
            paths = [f"layers.{layer}.layer_output" for layer in layer_numbers(layers, self.sizes["num_layers"])]
        functions = steering(paths, vector, factor, hidden_size=self.sizes["hidden_size"])
        return self.hooks({**functions}, positions=positions)

    def _streams(self, name: str) -> list[str]:
        """The paths of the streams that a name picks, to which a vector can be added."""
        paths = [str(path) for path in pick(self._subject, [name]).names]
        for path in paths:
            value = VALUES.get(path.rpartition(".")[2])
            if value is None or value.layout.axes[-1:] != ("hidden_size",):
                raise InputError(f"`{path}` is no stream of hidden_size, to which a vector can be added.")
        return paths

    def __repr__(self) -> str:
        return printout.text(self._subject, self._edits_told())

    __str__ = __repr__

    def __rich__(self) -> Any:
        return printout.rich_text(self._subject, self._edits_told())

    def _repr_html_(self) -> str:
        return printout.html(self._subject, self._edits_told())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _edits_told(self) -> str:
        return edits_told(self._edits, self._subject.sizes["num_layers"])

    def _function_edits(
        self, functions: Mapping[Selector, ValueFunction], positions: Positions, step: int | None
    ) -> list[FunctionEdit]:
        if not isinstance(functions, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                "functions are given by name, `{'layers.1.mlp.mlp_output': function}`; it was given a "
                f"{type(functions).__name__}."
            )
        self._subject.bring_weights()  # they come in a model of their own, whose modules the functions are for
        if step is not None and positions is not None:
            raise InputError("give `positions` or `step`, not both.")
        choice: Choice = as_choice(positions) if step is None else of_step(step)
        return [
            FunctionEdit(address, function, choice)
            for name, function in functions.items()
            for address in addresses(self._subject, name)
        ]
