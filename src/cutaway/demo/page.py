"""The demo's attention page, which the demo may write anew: it knows its own."""

from __future__ import annotations

from pathlib import Path

from cutaway.drawing import attention_page
from cutaway.files import write_file
from cutaway.model import StandardizedTransformer

_MARK = b"<!-- written by cutaway demo -->\n"


def is_own_page(path: Path) -> bool:
    """Whether the demo wrote a file, all of it and to the end."""
    try:
        with path.open("rb") as file:
            file.seek(-len(_MARK), 2)
            return file.read() == _MARK
    except OSError:
        return False


def write_page(
    model: StandardizedTransformer, prompt: str, path: Path, *, layer: int, head: int, replace: bool = False
) -> None:
    """Writes the attention page of a prompt, over an earlier one of the demo's, or with `replace` over any file.

    Raises:
        AlreadyThereError: another file is there.
        OutputError: it cannot be written.
    """
    page = attention_page(model, prompt, layer=layer, head=head)
    write_file(path, page.html.encode() + _MARK, replace=replace or is_own_page(path))
