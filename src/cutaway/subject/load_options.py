"""Options of loading whose values are names: a name that nobody knows is refused before anything is loaded.

Further on it would surface as the fault of the weights, or as an error of torch's once they have all been read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cutaway.errors import InputError, did_you_mean

_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")


def refuse_unknown_names(attn_implementation: Any, device: Any, extra: Mapping[str, Any]) -> None:
    """Raises where an attention implementation, a device or a device map is of no name that is known.

    Args:
        attn_implementation: as transformers takes it; the name of a kernel on the hub, `owner/name`, is left to it.
        device: as torch takes it.
        extra: the arguments of `from_pretrained`, `device_map` among them.

    Raises:
        InputError: with near names.
    """
    if isinstance(attn_implementation, str) and "/" not in attn_implementation:
        known = ["eager", *(name for name in ALL_ATTENTION_FUNCTIONS.valid_keys() if not name.startswith("paged|"))]
        if attn_implementation not in (*known, *ALL_ATTENTION_FUNCTIONS.valid_keys()):
            raise InputError(
                f"no attention implementation is called '{attn_implementation}'."
                f"{did_you_mean(attn_implementation, known)} There are {', '.join(sorted(known))}."
            )
    if device is not None:
        _refuse_unknown_device(device, "device", ())
    device_map = extra.get("device_map")
    if isinstance(device_map, str):
        _refuse_unknown_device(device_map, "device map", _MAPS)
    if device is not None and device_map is not None:
        raise InputError("a device and a device map were given, and both say where the model goes. Give one of them.")


def _refuse_unknown_device(device: Any, what: str, others: tuple[str, ...]) -> None:
    if device in others:
        return
    try:
        torch.device(device)
    except (RuntimeError, TypeError) as error:
        near = did_you_mean(str(device), [*others, "cpu", "cuda", "cuda:0", "mps", "xpu"])
        there = ", ".join([*others, "cpu", "cuda", "cuda:1", "mps"])
        raise InputError(f"no {what} is called '{device}'.{near} There are {there}, ...") from error
