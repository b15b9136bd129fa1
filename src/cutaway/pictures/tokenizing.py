"""From ids to the tokens that pictures take: each token's own text, so that together they are the whole text.

Decoding ids one by one loses the space before a word in some tokenizers, and a character that is cut in two in all. So
a token is taken from its piece in the vocabulary where that says which bytes it stands for, and otherwise from what it
adds to the decoding of the token before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cutaway.pictures.labels import Token

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[Token]:
    """The text of each id: a string, or bytes where a token holds part of a character.

    An id without a token, as a padded vocabulary has, is written `<id 50300>`.

    Args:
        tokenizer: a tokenizer of transformers.
        ids: `[seq]`, token ids; a tensor or an array does too.
    """
    numbers = [int(i) for i in ids]
    pieces: list[str | None] = list(tokenizer.convert_ids_to_tokens(numbers))
    added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    alphabet = _byte_alphabet() if _is_byte_level(tokenizer) else None
    texts = list[Token]()
    for n, (number, piece) in enumerate(zip(numbers, pieces, strict=True)):
        if piece is None:
            texts.append(f"<id {number}>")
        elif number in added:
            texts.append(str(added[number]))
        elif alphabet and all(character in alphabet for character in piece):
            texts.append(_text_or_bytes(bytes(alphabet[character] for character in piece)))
        elif byte := _BYTE.fullmatch(piece):
            texts.append(_text_or_bytes(bytes([int(byte[1], 16)])))
        else:
            texts.append(_what_it_adds(tokenizer, numbers[max(0, n - 1) : n], number))
    return texts


def _is_byte_level(tokenizer: Any) -> bool:
    fast = getattr(tokenizer, "backend_tokenizer", None)
    return "ByteLevel" in repr(getattr(fast, "decoder", None)) or hasattr(tokenizer, "byte_decoder")


def _what_it_adds(tokenizer: Any, before: list[int], number: int) -> str:
    options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    start = str(tokenizer.decode(before, **options)) if before else ""
    both = str(tokenizer.decode([*before, number], **options))
    return both[len(start) :] if both.startswith(start) else str(tokenizer.decode([number], **options))


def _text_or_bytes(raw: bytes) -> Token:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet of bytes (Radford et al. 2019): printable Latin-1 as itself, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
