"""Weights that bitsandbytes packs on the way.

On a CPU, bitsandbytes packs a layer's 4-bit weights anew in the first evaluation that records no gradients, for
a faster product that has none. It rounds in doing so, and from then on gradients through the layer are wrong, in
training too. So what is run to look at a model leaves its weights as they were, and a pass with gradients through a
packed layer is refused.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator
from typing import Any

from torch import nn


@contextlib.contextmanager
def left_unpacked(hf: nn.Module) -> Generator[None]:
    """A model that runs in here has its 4-bit weights as they were when it is left."""
    kept = [(weight, weight.data, state, dict(vars(state))) for _, weight, state in _in_4_bits(hf)]
    try:
        yield
    finally:
        for weight, data, state, attributes in kept:
            if weight.data_ptr() != data.data_ptr():
                weight.data = data
                vars(state).clear()
                vars(state).update(attributes)


def packed(hf: nn.Module) -> str:
    """The path of the first layer whose weights were packed; empty where there is none."""
    return next((path for path, _, state in _in_4_bits(hf) if getattr(state, "packing_format_for_cpu", False)), "")


def _in_4_bits(hf: nn.Module) -> Iterator[tuple[str, Any, Any]]:
    """The path of each module with 4-bit weights, the weights, and what bitsandbytes keeps beside them."""
    if "bitsandbytes" not in sys.modules:
        return
    for path, module in hf.named_modules():
        weight: Any = module._parameters.get("weight")
        state = getattr(weight, "quant_state", None)
        if state is not None:
            yield path, weight, state
