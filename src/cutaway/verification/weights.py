"""Where the reference's weights come from: the running model itself, or a folder that the model should equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import UnsupportedModelError
from cutaway.model import StandardizedTransformer
from cutaway.reference import Phi
from cutaway.reference.checkpoint import native_name
from cutaway.reference.parts import Array
from cutaway.verification.steps import WEIGHTS


def array_of(tensor: Tensor, dtype: Any) -> Array:
    """A tensor as an array of this dtype; bfloat16 and float16 are widened, and what fits is shared, not copied."""
    kept = tensor.detach().cpu()
    if kept.dtype not in (torch.float32, torch.float64):
        kept = kept.float()
    return kept.numpy().astype(dtype, copy=False)


def reference_of(model: StandardizedTransformer, dtype: Any) -> Phi:
    """The reference around the weights that are running, under the config that the model says it has.

    Raises:
        UnsupportedModelError: the model is not a Phi, or a Phi with a setting that the reference does not know.
    """
    tensors = {name: array_of(tensor, dtype) for name, tensor in model.hf.state_dict().items()}
    config = model.config.to_dict()
    if config.get("tie_word_embeddings"):
        tensors.pop("lm_head.weight", None)
    return Phi.from_tensors(config, tensors, dtype=dtype)


def reference_from(folder: str | Path | Phi, model: StandardizedTransformer, dtype: Any) -> Phi:
    """The reference that was asked for, which has to be of the model's sizes.

    Raises:
        LoadError: the folder cannot be read.
        UnsupportedModelError: its sizes are not the model's.
    """
    phi = folder if isinstance(folder, Phi) else Phi.from_pretrained(folder, dtype=dtype)
    unlike = [
        f"`{name}` is {size} in the model and {getattr(phi.config, name)} in the reference"
        for name, size in model.sizes.items()
        if getattr(phi.config, name) != size
    ]
    if unlike:
        raise UnsupportedModelError(
            f"the reference is not of the model's sizes: {'; '.join(unlike)}. Give the checkpoint that the model was "
            "made from"
        )
    return phi


def differing_weights(name: str, layer: int | None, reference: Phi, own: Phi) -> Iterator[str]:
    """What sets the model's weights apart from the reference's, for the modules that a step uses."""
    for module in WEIGHTS.get(name, ()):
        ours, theirs = _module(reference, layer, module), _module(own, layer, module)
        if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
            yield from _apart(_path(layer, f"{module}.weight"), ours, theirs)
            continue
        for part in ("weight", "bias"):
            yield from _apart(_path(layer, f"{module}.{part}"), getattr(ours, part, None), getattr(theirs, part, None))


def _module(phi: Phi, layer: int | None, path: str) -> Any:
    found: Any = phi if layer is None else phi.layers[layer]
    for word in path.split("."):
        found = getattr(found, word)
    return found


def _path(layer: int | None, path: str) -> str:
    return native_name(path if layer is None else f"layers.{layer}.{path}")


def _apart(name: str, ours: Array | None, theirs: Array | None) -> Iterator[str]:
    if ours is None or theirs is None or np.array_equal(ours, theirs):
        return
    apart = float(np.abs(ours.astype(np.float64) - theirs).max())
    zero = ", and is zero throughout" if not theirs.any() else ""
    yield f"`{name}` is up to {apart:.2g} from the reference's{zero}"
