"""From what a call was given to what the transformers model is called with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from cutaway.errors import CutawayError, InputError
from cutaway.subject.arguments import forward_arguments, prompt_among, refuse_generate_arguments, takes
from cutaway.subject.inputs import Prompt, cached_positions, prepare_inputs
from cutaway.subject.limits import check_new_tokens
from cutaway.subject.names import pick
from cutaway.subject.new_tokens import reach_of
from cutaway.subject.subject import Subject
from cutaway.vocabulary.elsewhere import near_argument

P = ParamSpec("P")
R = TypeVar("R")


def forward_inputs(
    subject: Subject,
    call: Callable[..., Any],
    prompt: Prompt | None,
    attention_mask: Tensor | Sequence[Any] | None,
    forward: Mapping[str, Any],
) -> dict[str, Any]:
    """What the model is called with."""
    given, forward = prompt_among(call, prompt, forward)
    inputs = prompt_inputs(subject, given, attention_mask, forward)
    return forward_arguments(subject.hf, call, given, inputs, forward)


def generate_inputs(
    subject: Subject,
    call: Callable[..., Any],
    prompt: Prompt | None,
    attention_mask: Tensor | Sequence[Any] | None,
    arguments: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `generate` is called with: for the prompt, and further.

    Raises:
        InputError: an argument is unknown, or the new tokens would go beyond a table of positions.

    Warns:
        LongPromptWarning: they go beyond the context, or beyond a table of positions unless the generation stops.
    """
    given, arguments = prompt_among(call, prompt, arguments)
    inputs = prompt_inputs(subject, given, attention_mask, generates=True)
    refuse_generate_arguments(subject.hf, call, given, inputs, arguments)
    length = next(inputs[name].shape[1] for name in ("input_ids", "inputs_embeds") if name in inputs)
    reach = reach_of(subject.hf, arguments, length)
    if reach is not None:
        check_new_tokens(length, reach.new, subject.limits, may_stop=reach.may_stop)
    return inputs, arguments


def prompt_inputs(
    subject: Subject,
    prompt: Prompt,
    attention_mask: Tensor | Sequence[Any] | None,
    forward: Mapping[str, Any] = MappingProxyType({}),
    *,
    generates: bool = False,
) -> dict[str, Any]:
    """What the model or its `generate` is called with for a prompt alone."""
    device = subject.input_device if subject.has_weights else torch.device("cpu")
    # `generate` is given the cached tokens too, and makes masks and positions of its own where it is told none.
    from_mask = subject.family.positions_from_mask and not generates
    past = cached_positions(forward)
    inputs = prepare_inputs(
        prompt,
        subject.tokenizer,
        subject.hf.config,
        device,
        subject.limits,
        attention_mask,
        from_mask,
        past,
        mask_if_untold=not generates,
    )
    if "attention_mask" in inputs and not takes(subject.hf, "attention_mask") and attention_mask is None:
        mask = inputs.pop("attention_mask")
        if not bool(mask.all()):
            raise InputError(
                f"the forward of {type(subject.hf).__name__} uses no `attention_mask`, and would read padding as "
                "tokens. Give rows of equal length."
            )
    return inputs


def also_a_name(subject: Subject, prompt: Any, names: tuple[Any, ...]) -> tuple[Any, ...]:
    """Names, where the ids were given by `input_ids=`, so that what stood in the prompt's place is a name too."""
    try:
        pick(subject, [prompt])
    except CutawayError as error:
        raise InputError(
            f"the ids are given by name, so that all before them are names of values, and {prompt!r} is none: "
            f"{error} If it is the prompt, that is given twice: leave out the ids."
        ) from None
    return (prompt, *names)


def with_known_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """The method, which refuses an argument that it does not have with what is meant by it."""
    known = [name for name in inspect.signature(method).parameters if name != "self"]

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                hint = near_argument(name, known)
                raise InputError(f"`{method.__name__}` has no argument `{name}`.{hint} It has: {', '.join(known)}.")
        return method(*args, **kwargs)

    return call
