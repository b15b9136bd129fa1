"""Drafting the family file of an architecture that has none.

A twin of the model is run once on the meta device, with no weights and no compute, and it is noted which module is
called with what, and of which tensors each sum and product is made. From that follows most of a family file: what is a
norm of what, what is added to the stream and in which order, which projection is the last. A guess is marked so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

__all__ = ["propose"]


def propose(model: PreTrainedModel | PretrainedConfig) -> str:
    """A first draft of a family file, as Python source that can be saved and registered.

    >>> print(cutaway.families.propose(model))

    Lines to compare with transformers' source are marked `# to check:`; what was not found is under `unavailable`.

    Args:
        model: a transformers model, or a config of a causal language model.

    Raises:
        UnsupportedModelError: the model has no list of blocks, or its head or embedding cannot be told.
    """
    from cutaway.families.proposal.draft import write
    from cutaway.families.proposal.recording import record
    from cutaway.families.proposal.structure import find

    recording = record(model)
    return write(find(recording), recording)
