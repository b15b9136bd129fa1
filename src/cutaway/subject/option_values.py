"""Values of options that are names, or hold them: one that nobody knows is refused before anything is loaded."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from transformers import BitsAndBytesConfig, PretrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cutaway.errors import OptionError, did_you_mean

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""The device maps that have a name."""


def dtype_of(dtype: Any) -> torch.dtype | str | None:
    """The dtype that is meant; "auto" and None as they are.

    Raises:
        OptionError: torch has no such dtype, or weights cannot be of it; near names are listed.
    """
    if dtype is None or (isinstance(dtype, str) and dtype == "auto"):
        return dtype
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype):
        near = did_you_mean(str(dtype).removeprefix("torch."), ("float32", "float16", "bfloat16", "float64"))
        raise OptionError(f"dtype={dtype!r} is no dtype of torch.{near}")
    if not found.is_floating_point:
        raise OptionError(
            f"dtype={dtype!r} is no dtype of floating point, and a model's weights are. To have them stored in fewer "
            "bits, say quantization_config=…."
        )
    return found


def refuse_unknown_attention(attn_implementation: Any) -> None:
    """Raises an `OptionError` for an attention implementation that nobody knows; near names are listed.

    It is a name, or a mapping from parts of the model to names, see `refuse_unknown_parts`. The name of a kernel on the
    hub, `owner/name`, is left to transformers.
    """
    if attn_implementation is None:
        return
    if isinstance(attn_implementation, Mapping):
        for name in attn_implementation.values():
            refuse_unknown_attention(name)
        return
    if not isinstance(attn_implementation, str):
        raise OptionError(f"`attn_implementation` is a name, 'sdpa' say; it was given {attn_implementation!r}.")
    if "/" in attn_implementation:
        return
    registered = ALL_ATTENTION_FUNCTIONS.valid_keys()
    known = ["eager", *(name for name in registered if not name.startswith("paged|"))]
    if attn_implementation not in (*known, *registered):
        raise OptionError(
            f"no attention implementation is called '{attn_implementation}'."
            f"{did_you_mean(attn_implementation.lower(), known)} There are {', '.join(sorted(known))}."
        )


def refuse_unknown_parts(attn_implementation: Any, config: PretrainedConfig) -> None:
    """Raises an `OptionError` where attention is named for a part of the model that its config does not have.

    A part is the name of a config inside the config; the empty one stands for all.
    """
    if not isinstance(attn_implementation, Mapping):
        return
    parts = ["", *config.sub_configs]
    for part in attn_implementation:
        if part not in parts:
            there, near = ", ".join(map(repr, parts)), did_you_mean(str(part), parts)
            raise OptionError(f"`attn_implementation` names a part {part!r}, and this model has {there}.{near}")


def refuse_unknown_device(device: Any, what: str, others: tuple[str, ...]) -> None:
    """Raises an `OptionError` for what torch does not take for a device and is none of the other names."""
    if device in others:
        return
    try:
        torch.device(device)
    except (RuntimeError, TypeError) as error:
        near = did_you_mean(str(device), [*others, "cpu", "cuda", "cuda:0", "mps", "xpu"])
        there = ", ".join([*others, "cpu", "cuda", "cuda:1", "mps"])
        raise OptionError(f"no {what} is called '{device}'.{near} There are {there}, ...") from error


def refuse_unknown_map(device_map: Any) -> None:
    """Raises an `OptionError` for a device map, or a device in one, that nobody knows."""
    if isinstance(device_map, Mapping):
        for device in device_map.values():
            refuse_unknown_device(device, "device", ("disk",))
    elif isinstance(device_map, str):
        refuse_unknown_device(device_map, "device map", DEVICE_MAPS)


def refuse_unknown_settings(quantization: Any) -> None:
    """Raises an `OptionError` for a setting of bitsandbytes' that transformers would drop without a word."""
    if not isinstance(quantization, Mapping) or quantization.get("quant_method", "bitsandbytes") != "bitsandbytes":
        return  # other classes use keywords that they do not name
    known = {"quant_method", *inspect.signature(BitsAndBytesConfig).parameters} - {"kwargs"}
    for name in quantization:
        if name not in known and not name.startswith("_"):
            raise OptionError(
                f"`quantization_config` has a setting `{name}`, which BitsAndBytesConfig does not have."
                f"{did_you_mean(name, sorted(known))}"
            )
