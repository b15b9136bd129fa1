"""Finding the family of a model that no file covers, and drafting such a file.

A pass of the model, or of its twin on the meta device, is recorded: which module is called with what, and of which
tensors each sum and product is made. From that follows what is a norm of what, what is added to the stream and in which
order, which projection is the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from cutaway.families.family import Family

__all__ = ["derive", "propose"]


def derive(hf: PreTrainedModel, has_weights: bool = False, device: Any = None) -> Family:
    """The family of a model that no file covers, found in a pass of it; see `derivation.derive`."""
    from cutaway.families.derivation.derive import derive as found

    return found(hf, has_weights, device)


def propose(model: PreTrainedModel | PretrainedConfig) -> str:
    """A first draft of a family file, as Python source that can be saved and registered.

    >>> print(cutaway.families.propose(model))

    Lines to compare with transformers' source are marked `# to check:`; what was not found is under `unavailable`.

    Args:
        model: a transformers model, also as a `StandardizedTransformer`, or a config of a causal language model.

    Raises:
        InputError: it is neither.
        UnsupportedModelError: the model has no list of blocks, or its head or embedding cannot be told.
    """
    from cutaway.families.derivation.draft import propose as drafted

    return drafted(model)
