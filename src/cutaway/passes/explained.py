"""What is said beside the errors of torch and transformers that leave a trace."""

from __future__ import annotations

from torch import Tensor


def explain(error: BaseException | None) -> None:
    """Adds to an error what to do about it, where that is known."""
    if isinstance(error, AttributeError) and isinstance(error.obj, Tensor) and error.name in ("save", "value"):
        error.add_note(_NO_SAVE)
    if isinstance(error, ValueError) and "if no padding token is defined" in str(error):
        error.add_note(_NO_PADDING)


_NO_SAVE = (
    "A tensor that the body computes, an index as `output[0]` among them, is a plain one, which outlives the trace as "
    "it is. For a copy as it is now: `cutaway.save(tensor)`."
)
"""Of nnsight's `.save` and `.value`, which such a tensor does not carry."""

_NO_PADDING = (
    "The head looks for the last token of each row by the padding token, and the model's config names none. Name it, "
    "`model.hf.config.pad_token_id = …`, or give one row at a time. Values inside the model are there all the same."
)
