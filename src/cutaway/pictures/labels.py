"""Labels: what a token looks like when it is written down, so that it can be read back.

A token is a piece of text, and much of what matters in it does not show: spaces, line ends, a mark that turns the
writing direction. A label makes every such character visible in one character where there is a usual sign for it
(`·` space, `↵` line feed, `⇥` tab, `⇤` carriage return, `∅` a token with nothing in it), and as `\\u{202e}` where
there is none. A character that would be mistaken for one of these signs is written as its number too, so the mapping
is one to one: `text_of(labels)` is the text again.

A byte-level tokenizer may cut a character in two. Give such tokens as `bytes`: what is no whole character is labelled
`\\x{e2}`, and the labels still join to the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

Token = str | bytes
"""A token's text; bytes where it may hold part of a character."""

SIGNS = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "⇤"}
EMPTY = "∅"
LINE_END = SIGNS["\n"]

_SPOKEN = {" ": "space", "\n": "line feed", "\t": "tab", "\r": "carriage return"}
_CHARACTERS = {sign: character for character, sign in SIGNS.items()}
_TAKEN = {*_CHARACTERS, EMPTY}
# Controls, marks that set the direction or join, surrogates, private use, unassigned, separators.
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
# What hangs on the character before it, and in front of which a label may have nothing.
_HANGING = {"Mn", "Me", "Mc"}
_NUMBERED = re.compile(r"\\([ux])\{([0-9a-f]{1,6})\}")


def token_label(token: Token) -> str:
    """The token with everything in it visible; never empty, never with white space or a line end in it."""
    text = _as_text(token)
    if not text:
        return EMPTY
    return "".join(_visible(text, i) for i in range(len(text)))


def token_labels(tokens: Iterable[Token]) -> list[str]:
    """The labels of several tokens, in order."""
    return [token_label(token) for token in tokens]


def text_of(labels: Iterable[str]) -> str:
    """The text that labels stand for: `text_of(token_labels(tokens))` is the tokens, joined.

    Bytes that do not join to whole characters come back as Python's `surrogateescape` writes them.
    """
    text = "".join(_from_label(label) for label in labels)
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        return text


def spoken(token: Token) -> str:
    """The token for a screen reader: its white space in words, `space def`, `4 spaces`."""
    text = _as_text(token)
    if not text:
        return "empty token"
    words: list[str] = []
    for run in re.findall(r" +|\n+|\t+|\r+|[^ \n\t\r]+", text):
        name = _SPOKEN.get(run[0])
        if name is None:
            words.append(token_label(run))
        else:
            words.append(name if len(run) == 1 else f"{len(run)} {name}s")
    return " ".join(words)


def _as_text(token: Token) -> str:
    return token.decode("utf-8", "surrogateescape") if isinstance(token, bytes) else token


def _visible(text: str, i: int) -> str:
    character = text[i]
    if character in SIGNS:
        return SIGNS[character]
    if "\udc80" <= character <= "\udcff":
        return f"\\x{{{ord(character) - 0xDC00:x}}}"
    category = unicodedata.category(character)
    alone = category in _HANGING and (i == 0 or text[i - 1].isspace())
    mistaken = character in _TAKEN or text[i : i + 3] in ("\\u{", "\\x{")
    if alone or mistaken or category in INVISIBLE:
        return by_number(character)
    return character


def by_number(character: str) -> str:
    """The character written as its code point, `\\u{202e}`."""
    return f"\\u{{{ord(character):x}}}"


def _from_label(label: str) -> str:
    if label == EMPTY:
        return ""
    signs = "".join(_CHARACTERS.get(character, character) for character in label)
    return _NUMBERED.sub(lambda m: chr(int(m[2], 16) + (0xDC00 if m[1] == "x" else 0)), signs)
