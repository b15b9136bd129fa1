"""What a call is given beside its prompt: every argument is one that the model uses, or it is refused.

A `forward` of transformers ends in `**kwargs`, which go down to the attention function and the loss. So a misspelt
argument is dropped there without a word, and what was meant does not happen. Which arguments are used is asked of the
model: the parameters of its forward and of what its keywords reach.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, get_args

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import TransformersKwargs

from cutaway.errors import InputError
from cutaway.vocabulary.elsewhere import argument_elsewhere, near_argument

_PROMPTS = ("input_ids", "inputs_embeds", "inputs")
"""What transformers calls a prompt."""


def holds_prompt(further: Mapping[str, Any]) -> bool:
    """Whether the prompt is among the arguments given by name."""
    return any(further.get(name) is not None for name in _PROMPTS)


def prompt_among(call: Callable[..., Any], prompt: Any, further: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The prompt, where it was given as transformers has it, `call(**tokens)`, and the other arguments.

    Raises:
        InputError: there is none.
    """
    rest = {name: value for name, value in further.items() if value is not None or name not in _PROMPTS}
    if prompt is not None:
        _refuse_twice(prompt, rest)
        return prompt, rest
    tokens = {name: rest.pop(name) for name in _PROMPTS if name in rest}
    if "inputs" in tokens and len(tokens) > 1:
        raise InputError("`inputs` is another name of the prompt, which is given already. Give one of them.")
    if not tokens:
        hints = "".join(filter(None, map(argument_elsewhere, rest)))
        raise InputError(
            f"`{call.__name__}` was given no prompt; it was given a NoneType. Give text, ids or a tokenizer's output: "
            f"`{call.__name__}(**tokens)`.{hints}"
        )
    return (tokens["inputs"] if [*tokens] == ["inputs"] else tokens), rest


def takes(hf: PreTrainedModel, argument: str) -> bool:
    """Whether a model's forward uses an argument of this name."""
    return argument in _forward_names(hf, {argument})


def refuse_as_call(args: Sequence[Any]) -> None:
    """Raises where a model is called, as transformers' models are, with what they do not take.

    Raises:
        InputError: the first argument is a text, a list or a mapping.
    """
    if not args or args[0] is None or isinstance(args[0], torch.Tensor):
        return
    what = "a text" if isinstance(args[0], str) else f"a {type(args[0]).__name__}"
    spread = ", or a tokenizer's output spread, `model(**tokens)`" if isinstance(args[0], Mapping) else ""
    raise InputError(
        f"`model(…)` is transformers' own call, which takes ids as a tensor{spread}; it was given {what}. For values "
        "of a pass say `model.read(prompt, 'logits')` or `with model.trace(prompt):`, for new tokens "
        "`model.generate(prompt, …)`."
    )


def forward_arguments(
    hf: PreTrainedModel, call: Callable[..., Any], prompt: Any, inputs: Mapping[str, Any], further: Mapping[str, Any]
) -> dict[str, Any]:
    """What a model's forward is called with: a prompt's inputs and the further arguments of a call.

    Args:
        hf: the model.
        call: the method that was called, whose own arguments are offered as near names too.
        prompt: as it was given.
        inputs: what was made of it.
        further: what the call was given beside it.

    Raises:
        InputError: an argument, or a key of a mapping, is given twice, or the model does not use it.
    """
    _refuse_twice(prompt, further)
    if {"input_ids", "inputs_embeds"} <= {*inputs, *further}:
        raise InputError("a pass runs ids or embeddings, and it was given both. Leave out one of them.")
    known = _forward_names(hf, {*inputs, *further})
    _refuse_unknown([*inputs, *further], known, f"{type(hf).__name__}'s forward", call)
    for name, value in (*inputs.items(), *further.items()):
        reason = _why_without_effect(hf, name, value, further.get("labels", inputs.get("labels")))
        if reason:
            raise InputError(f"`{name}` would have no effect: {reason}")
    return {**inputs, **further}


def refuse_generate_arguments(
    hf: PreTrainedModel, call: Callable[..., Any], prompt: Any, inputs: Mapping[str, Any], further: Mapping[str, Any]
) -> None:
    """Raises where transformers' `generate` would not use an argument; arguments are those of `forward_arguments`.

    Raises:
        InputError: an argument, or a key of a mapping, is given twice, or nobody uses it.
    """
    _refuse_twice(prompt, further)
    known = {*_MODES, *vars(GenerationConfig()), *_forward_names(hf, {*inputs, *further})}
    model: Any = hf
    known |= _parameters(model.generate) | _parameters(model.prepare_inputs_for_generation)
    config, custom = further.get("generation_config"), further.get("custom_generate")
    known.update(vars(config) if config is not None else ())
    known |= _parameters(custom) if callable(custom) else set()
    _refuse_unknown([*inputs, *further], known, f"{type(hf).__name__}'s generate", call)


_MODES = ("tokenizer", "assistant_tokenizer", "trust_remote_code", "cache_params")
"""What `generate` takes out of its keywords without naming it."""

_PER_MODULE = {"module", "query", "key", "value", "attention_mask", "scaling", "dropout"}
"""What an attention module itself gives its attention function."""


def _forward_names(hf: PreTrainedModel, given: Collection[str]) -> frozenset[str]:
    """The arguments that a forward uses: those it names, and those that its keywords are read for."""
    names = _named_by(type(hf))
    if names.issuperset(given):
        return names
    attention = ALL_ATTENTION_FUNCTIONS.get(hf.config._attn_implementation)  # one of the user's may have its own
    names |= _parameters(hf.forward) | (_parameters(attention) - _PER_MODULE)
    return names | _parameters(hf.loss_function) - {"logits", "vocab_size"} if "labels" in given else names


@lru_cache(maxsize=64)
def _named_by(model: type[PreTrainedModel]) -> frozenset[str]:
    names = {"return_dict", *TransformersKwargs.__optional_keys__}
    for of in model.__mro__:  # a class hands what its forward does not name on to the class it derives from
        if "forward" in vars(of):
            names |= _parameters(of.forward) | _typed_keywords(of.forward)
    if "cache" in names:
        names.add("past_key_values")  # its former name
    return frozenset(names - {"self"})


def _parameters(function: Callable[..., Any] | None) -> set[str]:
    """The names that a function gives its parameters, without its `*` and `**`."""
    if function is None:
        return set()
    gathers = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind not in gathers}


def _typed_keywords(function: Callable[..., Any]) -> set[str]:
    """The keys of the `TypedDict` in `**kwargs: Unpack[…]`."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            return {name for typed in get_args(parameter.annotation) for name in getattr(typed, "__annotations__", ())}
    return set()


def _refuse_twice(prompt: Any, further: Mapping[str, Any]) -> None:
    if prompt is None or not further:
        return
    holds = set(map(str, prompt)) if isinstance(prompt, Mapping) else {"input_ids"}
    for name in further:
        if name in holds:
            raise InputError(f"`{name}` is given twice, in the prompt and beside it. Give it once.")
        if name == "inputs":
            raise InputError("`inputs` is another name of the prompt, which is given already. Give one of them.")


def _refuse_unknown(given: Iterable[str], known: Collection[str], takes: str, call: Callable[..., Any]) -> None:
    for name in given:
        if name in known:
            continue
        if name in _TOKENIZERS:
            raise InputError(f"{takes} has no argument `{name}`, so it would have no effect. {_TOKENIZERS[name]}")
        hint = near_argument(name, sorted({*known, *_parameters(call)} - {"self"})) or " Leave it out."
        raise InputError(
            f"neither `{call.__name__}` nor {takes} has an argument `{name}`, so it would have no effect.{hint}"
        )


_POP = "It is for the text, and not for the model: take it out of the tokenizer's output with `pop`."
_TOKENIZERS = {
    "token_type_ids": "Leave it out: `tokenizer(text, return_token_type_ids=False)`.",
    **dict.fromkeys(("offset_mapping", "special_tokens_mask", "overflow_to_sample_mapping", "length"), _POP),
}
"""What a tokenizer's output may hold beside ids and mask, and what to do about it."""


def _why_without_effect(hf: PreTrainedModel, name: str, value: Any, labels: Any) -> str | None:
    """Why an argument that transformers knows does nothing in this call; None where it does something."""
    if value is None or value is False or name not in _CONDITIONAL:
        return None
    attention = hf.config._attn_implementation
    if name == "output_attentions" and attention not in (None, "eager"):
        return (
            f"the model runs {attention} attention, and transformers returns patterns under eager attention alone. "
            "Ask for `attention_probabilities`, which is there under every one, or load the model with "
            "attn_implementation='eager'."
        )
    if name == "num_items_in_batch" and labels is None:
        return "it counts in the loss, and no `labels` are given."
    if name in _FLASH and "flash" not in str(attention) and not _is_read(hf, name):
        return f"it is for flash attention, and the model runs {attention} attention."
    if name in ("output_router_logits", "seq_idx") and not _is_read(hf, name):
        return f"{type(hf).__name__} does not read it."
    return None


_FLASH = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
_CONDITIONAL = {"output_attentions", "num_items_in_batch", "output_router_logits", "seq_idx", *_FLASH}
"""What a forward reads in some models or calls and not in others."""


def _is_read(hf: PreTrainedModel, name: str) -> bool:
    """Whether the files that define the model's classes have a word."""
    files = {of.__module__ for of in type(hf).__mro__ if issubclass(of, PreTrainedModel) and of is not PreTrainedModel}
    return any(name in inspect.getsource(sys.modules[file]) for file in files)
