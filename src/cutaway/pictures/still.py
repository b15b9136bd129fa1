"""A still picture: a matplotlib figure that shows itself in a notebook and saves itself as PNG or SVG.

The figure belongs to no pyplot state, so nothing shows it a second time and nothing has to be closed. The same picture
is the same file, byte for byte, whenever it is saved.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.errors import InputError
from cutaway.files import write_file
from cutaway.pictures.theme import Theme, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 200
_NOTEBOOK_DPI = 144


class Picture:
    """What every function of a still picture returns.

    Attributes:
        figure: the matplotlib figure, to be changed at will.
        title: what the picture shows, in a line.
        description: the picture in words, for a reader who does not see it; it is written into both kinds of file.
    """

    def __init__(self, figure: Figure, *, title: str, description: str, theme: Theme) -> None:
        self.figure = figure
        self.title = title
        self.description = description
        self._theme = theme

    def __repr__(self) -> str:
        return f"<Picture: {self.title}>"

    def _repr_png_(self) -> bytes:
        return self.to_png(dpi=_NOTEBOOK_DPI)

    def to_png(self, dpi: float = PNG_DPI) -> bytes:
        """The picture as the bytes of a PNG file, at `dpi` dots an inch."""
        metadata = {"Software": None, "Title": self.title, "Description": self.description}
        return self._rendered("png", dpi, metadata)

    def to_svg(self) -> str:
        """The picture as SVG, its letters drawn as shapes so that it looks the same everywhere."""
        metadata = {"Date": None, "Creator": None, "Title": self.title, "Description": self.description}
        return self._rendered("svg", 288, metadata).decode("utf-8")

    def save(self, path: str | Path, *, dpi: float = PNG_DPI, replace: bool = True) -> Path:
        """Write the picture to `path`, in the format of its suffix, and return the path.

        The file is written whole or not at all.

        Args:
            path: a name that ends in `.png` or `.svg`, in a folder that exists.
            dpi: dots an inch of a PNG; an SVG has none.
            replace: whether a file that is there already may be replaced.

        Raises:
            InputError: the suffix is another.
            OutputError: the file cannot be written, or is there already where `replace` is false.
        """
        path = Path(path)
        match path.suffix.lower():
            case ".png":
                content = self.to_png(dpi)
            case ".svg":
                content = self.to_svg().encode()
            case other:
                raise InputError(wrong_suffix(path, other, "a still picture", (".png", ".svg")))
        return write_file(path, content, replace=replace)

    def _rendered(self, form: str, dpi: float, metadata: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        with drawing(self._theme):
            self.figure.savefig(buffer, format=form, dpi=dpi, metadata=metadata)
        return buffer.getvalue()


def wrong_suffix(path: Path, given: str, what: str, known: tuple[str, ...]) -> str:
    """The message of a save to a name with another suffix."""
    shown = f"'{given}'" if given else "no suffix"
    likely = path.with_suffix(known[0]).name if path.name else f"picture{known[0]}"
    return f"{what} is saved as {' or '.join(known)}, and '{path}' has {shown}; save it as '{likely}'"
