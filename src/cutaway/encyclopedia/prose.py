"""Text for pages: names in backticks become code, Python is coloured, and everything is escaped."""

from __future__ import annotations

import io
import keyword
import tokenize
from html import escape

from markupsafe import Markup

_STRINGS = {tokenize.STRING} | {
    getattr(tokenize, name) for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END") if hasattr(tokenize, name)
}


def prose(text: str) -> Markup:
    """A sentence, escaped, in which names in backticks are code."""
    parts = escape(text, quote=False).split("`")
    return Markup("".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)))


def sentence(text: str) -> Markup:
    """The same with a capital at its beginning and a full stop at its end, unless it begins with a name."""
    text = text.strip()
    text = text[:1].upper() + text[1:] if text else text
    return prose(text if text.endswith((".", "!", "?")) else f"{text}.")


def python(source: str) -> Markup:
    """Python, escaped, its words wrapped in spans by what they are."""
    lines = source.splitlines(keepends=True)
    out: list[str] = []
    row, column, defines = 1, 0, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT) or token.start < (row, column):
            continue
        out.append(escape(_between(lines, (row, column), token.start), quote=False))
        kind = "def" if defines and token.type == tokenize.NAME else _kind(token)
        defines = token.string in ("def", "class")
        text = escape(token.string, quote=False)
        out.append(f'<span class="{kind}">{text}</span>' if kind else text)
        row, column = token.end
    return Markup("".join(out).rstrip("\n"))


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.COMMENT:
        return "com"
    if token.type in _STRINGS:
        return "str"
    if token.type == tokenize.NUMBER:
        return "num"
    return "kw" if token.type == tokenize.NAME and keyword.iskeyword(token.string) else ""


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text between two places, which no token covers."""
    (row, column), (last, until) = start, end
    if row == last:
        return lines[row - 1][column:until] if row <= len(lines) else ""
    middle = "".join(lines[row : last - 1])
    return lines[row - 1][column:] + middle + (lines[last - 1][:until] if last <= len(lines) else "")
