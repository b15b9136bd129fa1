"""Files that commands write: refused before any work where they could not be written, and written whole."""

from __future__ import annotations

import os
from pathlib import Path

from cutaway.cli.terminal import is_terminal, say, write_bytes
from cutaway.errors import AlreadyThereError, InputError, OutputError
from cutaway.files import write_file

STANDARD_OUTPUT = Path("-")


def refuse_unwritable(path: Path, suffixes: tuple[str, ...], *, force: bool) -> None:
    """Raises before any work is done where a file could not be written.

    Args:
        path: `-` is standard output.
        suffixes: which a name may end in, the usual one first.
        force: whether a file that is there may be replaced.

    Raises:
        InputError: the suffix is another, there is no such folder, or a terminal would show the file.
        AlreadyThereError: the file is there.
        OutputError: it is a folder, or nobody may write there.
    """
    if path == STANDARD_OUTPUT:
        if is_terminal():
            raise InputError("a terminal cannot show this file: lead standard output into a file or a pipe.")
        return
    if path.suffix.lower() not in suffixes:
        named = path.with_suffix(suffixes[0]) if path.name else path / f"picture{suffixes[0]}"
        raise InputError(f"this is written as {' or '.join(suffixes)}; name the file {named}, not {path}.")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into.")
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name a file.")
    if path.is_file() and not force:
        raise _there(path)
    if not os.access(path if path.exists() and not path.is_file() else folder, os.W_OK):
        raise OutputError(f"{path} cannot be written: {folder} may not be written to.")


def save(path: Path, content: bytes, told: str, *, force: bool) -> None:
    """Writes a file and says so; on standard output, the file alone.

    Raises:
        AlreadyThereError: the file is there by now.
        OutputError: it cannot be written; nothing is left of it.
    """
    if path == STANDARD_OUTPUT:
        write_bytes(content)
        return
    try:
        write_file(path, content, replace=force)
    except AlreadyThereError as error:
        raise _there(path) from error
    say(told)


def _there(path: Path) -> AlreadyThereError:
    return AlreadyThereError(f"{path} is there already. Name another file with -o, or replace it with --force.")
