"""Writing a file: it is there whole under its name, or not at all.

Everything that Cutaway writes for a user goes through `write_file`. The content goes to a file beside the one meant,
which takes its name once it is on the disk; so a full disk, an error or an interrupt leaves what was there before.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from cutaway.errors import AlreadyThereError, OutputError


def write_file(path: str | Path, content: bytes, *, replace: bool = True) -> Path:
    """Writes a file, whole or not at all, and returns the path.

    A link is followed: what it leads to is written, and the link stays. A file that is replaced hands on its
    permissions. A device or a pipe is written to as it is.

    Args:
        path: in a folder that exists.
        content: all of it.
        replace: whether a file that is there already may be replaced.

    Raises:
        AlreadyThereError: there is such a file, and `replace` is false.
        OutputError: it cannot be written.
    """
    path = Path(path)
    try:
        there = _status(path)
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise OutputError(f"{path} is a folder. Name a file in it, {path / 'file'} say.")
        if there is not None and not stat.S_ISREG(there.st_mode):
            path.write_bytes(content)
        elif there is not None and not replace:
            raise FileExistsError
        else:
            _write_beside(Path(os.path.realpath(path)), content, there, replace)
    except FileExistsError:
        raise AlreadyThereError(f"{path} is there already.") from None
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _write_beside(path: Path, content: bytes, there: os.stat_result | None, replace: bool) -> None:
    unfinished = path.with_name(f".cutaway-{secrets.token_hex(8)}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if there is not None:
            with contextlib.suppress(OSError):  # who is not root cannot give a file away
                os.chown(unfinished, there.st_uid, there.st_gid)
            unfinished.chmod(stat.S_IMODE(there.st_mode))
        if replace:
            unfinished.replace(path)
        else:
            _take_free_name(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _take_free_name(unfinished: Path, path: Path) -> None:
    """Gives a file its name unless there is one of that name by now, which a rename would replace.

    Raises:
        FileExistsError: there is.
    """
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError from None
        unfinished.rename(path)
