"""A text's tokens: the positions in a prompt at which a part of it stands.

A fast tokenizer tells which characters each token is made of. A token counts where it holds any of the text's
characters, so the tokens of a character that takes several, and one that goes on beyond the text, are among them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import InputError

Offsets = Sequence[tuple[int, int]]
"""For each token, its first character and the one after its last; a token of none has two that are equal."""


def spans(prompt: Any, text: Any, tokenizer: Any, occurrence: int | None) -> range | list[range]:
    """The positions of `text` in a prompt, or, one a row, in several.

    Args:
        prompt: a string, strings, or ids in any form that `trace` takes; positions are counted in real tokens.
        text: what is looked for; one for all rows, or one a row.
        tokenizer: the model's.
        occurrence: which one, where it occurs several times; 0 is the first, -1 the last.

    Raises:
        InputError: it does not occur, or several times and `occurrence` does not say which; or the tokenizer does not
            tell characters.
    """
    if tokenizer is None:
        raise InputError(
            "this model has no tokenizer, so a text cannot be found in its tokens. Give it one: "
            "StandardizedTransformer(model, tokenizer=...)."
        )
    prompts, one = _prompts(prompt, tokenizer)
    texts: list[Any] = list(text) if isinstance(text, (list, tuple)) else [text] * len(prompts)  # pyright: ignore
    if len(texts) != len(prompts) or not all(isinstance(each, str) and each for each in texts):
        raise InputError(
            f"the text looked for is a string that is not empty, or one for each of the {len(prompts)} rows; it was "
            f"given {text!r}."
        )
    found = [
        _find(whole, offsets, part, occurrence, "" if one else f" of row {row}")
        for row, ((whole, offsets), part) in enumerate(zip(prompts, texts, strict=True))
    ]
    return found[0] if one else found


def _find(whole: str, offsets: Offsets, text: str, occurrence: int | None, row: str) -> range:
    starts = [match.start() for match in re.finditer(f"(?={re.escape(text)})", whole)]
    if not starts:
        raise InputError(f"{text!r} does not occur in the prompt{row}.{_near(whole, text)}")
    places = [_covering(offsets, start, start + len(text)) for start in starts]
    if occurrence is None and len(starts) > 1:
        raise InputError(
            f"{text!r} occurs {len(starts)} times in the prompt{row}, at positions "
            f"{', '.join(_shown(place) for place in places)}. Say which: occurrence=0 is the first, -1 the last."
        )
    try:
        return places[occurrence or 0]
    except IndexError:
        raise InputError(
            f"{text!r} occurs {len(starts)} time{'s' if len(starts) > 1 else ''} in the prompt{row}; there is no "
            f"occurrence={occurrence}."
        ) from None


def _covering(offsets: Offsets, start: int, end: int) -> range:
    inside = [i for i, (first, after) in enumerate(offsets) if first < end and after > start]
    if not inside:
        raise InputError("the tokenizer leaves these characters out of its tokens, so they have no position.")
    return range(inside[0], inside[-1] + 1)


def _shown(place: range) -> str:
    return str(place[0]) if len(place) == 1 else f"{place[0]}-{place[-1]}"


def _near(whole: str, text: str) -> str:
    """A hint: the same letters in another case, or as many words of the prompt that look like them."""
    start = whole.lower().find(text.lower())
    if start >= 0:
        return f" Did you mean {whole[start : start + len(text)]!r}?"
    words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", whole)]
    count = max(1, len(re.findall(r"\w+|[^\w\s]", text)))
    near = [whole[words[i][0] : words[i + count - 1][1]] for i in range(len(words) - count + 1)]
    close = difflib.get_close_matches(text.strip(), dict.fromkeys(near), n=3, cutoff=0.55)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def _prompts(prompt: Any, tokenizer: Any) -> tuple[list[tuple[str, Offsets]], bool]:
    """Each row's text and its tokens' characters, and whether it is one row alone."""
    if isinstance(prompt, str):
        return [_offsets(prompt, tokenizer, None)], True
    mask = None
    if isinstance(prompt, Mapping):
        if prompt.get("input_ids") is None:  # pyright: ignore
            raise InputError("a text is found in a prompt of text or ids, and this mapping holds no `input_ids`.")
        mask, prompt = prompt.get("attention_mask"), prompt["input_ids"]  # pyright: ignore
    if isinstance(prompt, (Tensor, np.ndarray)):
        prompt = prompt.tolist()
    rows: list[Any] = list(prompt)
    if rows and all(isinstance(row, str) for row in rows):
        return [_offsets(row, tokenizer, None) for row in rows], False
    one = bool(rows) and not isinstance(rows[0], (Sequence, Tensor, np.ndarray))
    rows = [rows] if one else rows
    real = torch.as_tensor(mask).reshape(len(rows), -1).bool().tolist() if mask is not None else None
    found: list[tuple[str, Offsets]] = []
    for number, row in enumerate(rows):
        ids = [int(token) for token in row]
        if real is not None:
            ids = [token for token, is_real in zip(ids, real[number], strict=True) if is_real]
        whole = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        found.append(_offsets(whole, tokenizer, ids))
    return found, one


def _offsets(whole: str, tokenizer: Any, ids: list[int] | None) -> tuple[str, Offsets]:
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"{type(tokenizer).__name__} does not tell which characters a token is made of, as fast tokenizers do "
            "(AutoTokenizer's default). Give positions as numbers."
        )
    found = tokenizer(whole, verbose=False, return_offsets_mapping=True, add_special_tokens=ids is None)
    if ids is not None and list(found["input_ids"]) != ids:
        raise InputError(
            "the ids are not those that the tokenizer gives for their text, so a text cannot be found in them. Give "
            "the prompt as a string, or positions as numbers."
        )
    return whole, found["offset_mapping"]
