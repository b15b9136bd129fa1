"""The prompt: a word of the command line, or standard input."""

from __future__ import annotations

import sys

from cutaway.errors import InputError


def read_prompt(given: str) -> str:
    """The text that was given; `-` stands for all of standard input.

    Raises:
        InputError: it is not UTF-8, or standard input is closed.
    """
    if given != "-":
        try:
            given.encode()
        except UnicodeEncodeError:
            raise InputError("the prompt is not text: it holds bytes that are not UTF-8.") from None
        return given
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # None where the descriptor is closed
        raise InputError("standard input is closed, and the prompt - is read from it.")
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input is not text: byte {error.start} is {error.object[error.start]:#04x}, which is not UTF-8."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"standard input cannot be read: {error}.") from error
    if not text:
        raise InputError("the prompt is empty: standard input holds nothing.")
    return text
