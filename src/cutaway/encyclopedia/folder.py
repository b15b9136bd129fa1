"""Writing a site into a folder without touching what is not of it.

The folder's own list of the files that a build wrote tells them from others. A folder that holds others is refused, and
with `force` they are left as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from cutaway.errors import AlreadyThereError, OutputError
from cutaway.files import write_file

LISTING = "site.json"
"""The file in which a build lists the files it wrote."""


def check_folder(folder: Path, *, force: bool) -> None:
    """Whether a site may be written there.

    Raises:
        AlreadyThereError: it holds files that no build wrote, and `force` is false.
        OutputError: it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file. Give a folder for the site: -o site.")
    others = sorted(str(path) for path in _files(folder) - _listed(folder))
    if others and not force:
        shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        raise AlreadyThereError(
            f"{folder} holds files that are not of the encyclopedia: {shown}. Give another folder, or --force to write "
            "the site among them; they are left as they are unless a page has the same name."
        )


def write_folder(folder: Path, pages: Mapping[str, bytes]) -> None:
    """Writes the files of a site, and takes away those of an earlier build that it no longer has.

    Each file is written whole or not at all. Until all are there, the listing names old and new ones, so that the next
    build knows for its own what an interrupted one has left.

    Raises:
        OutputError: the folder cannot be written to.
    """
    new, old = {Path(name) for name in pages}, _listed(folder) - {Path(LISTING)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_listing(folder, old | new)
        for name, content in pages.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, content)
        for name in old - new:
            (folder / name).unlink(missing_ok=True)
        _write_listing(folder, new)
    except OutputError as error:
        raise OutputError(f"the site cannot be written to {folder}: {error}") from error
    except OSError as error:
        raise OutputError(f"the site cannot be written to {folder}: {error.strerror or error}.") from error


def _write_listing(folder: Path, names: set[Path]) -> None:
    listing = {"made by": "cutaway encyclopedia build", "files": sorted(name.as_posix() for name in names)}
    write_file(folder / LISTING, f"{json.dumps(listing, indent=1)}\n".encode())


def _files(folder: Path) -> set[Path]:
    if not folder.is_dir():
        return set()
    return {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()}


def _listed(folder: Path) -> set[Path]:
    """The files that an earlier build wrote, the listing among them; nothing outside the folder."""
    try:
        found = json.loads((folder / LISTING).read_text(encoding="utf-8"))
        names = [Path(name) for name in found["files"]] if found["made by"] == "cutaway encyclopedia build" else []
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    inside = {name for name in names if not name.is_absolute() and ".." not in name.parts}
    return inside | {Path(LISTING)}
