"""How far a generation goes: how many tokens `generate` adds at most, and whether it may stop before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from transformers import PreTrainedModel


class Reach(NamedTuple):
    """How many tokens a row is added at most, and whether something may end it before."""

    new: int
    may_stop: bool


def reach_of(hf: PreTrainedModel, arguments: Mapping[str, Any], length: int) -> Reach | None:
    """How far transformers' `generate` goes with these arguments from a prompt of this length.

    As there, what a call says goes before the config that it is given, and this before the model's own. Where none says
    how many, transformers keeps within the context by itself: None.
    """
    configs = (arguments.get("generation_config"), getattr(hf, "generation_config", None))

    def said(name: str) -> Any:
        if arguments.get(name) is not None:
            return arguments[name]
        return next((value for config in configs if (value := getattr(config, name, None)) is not None), None)

    new, longest = said("max_new_tokens"), said("max_length")
    if new is None and longest is None:
        return None
    may_stop = any(said(name) is not None for name in _ENDS)
    try:
        return Reach(int(longest) - length if new is None else int(new), may_stop)
    except (TypeError, ValueError):  # transformers says what is wrong with it
        return None


_ENDS = ("eos_token_id", "stop_strings", "max_time", "stopping_criteria")
"""What may end a generation before it has made all tokens that were asked for."""
