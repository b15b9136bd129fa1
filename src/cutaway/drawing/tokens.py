"""The tokens of a prompt, as pictures take them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutaway.errors import InputError
from cutaway.model import StandardizedTransformer
from cutaway.pictures import Token, token_texts


def tokens_of(model: StandardizedTransformer, prompt: str) -> list[Token]:
    """Each token's own text; together they are the prompt.

    Raises:
        InputError: the model has no tokenizer.
    """
    return texts_of(model, tokenizer_of(model)(prompt)["input_ids"])


def texts_of(model: StandardizedTransformer, ids: Sequence[int]) -> list[Token]:
    """The texts of token ids that stand in one text."""
    return token_texts(tokenizer_of(model), ids)


def each_alone(model: StandardizedTransformer, ids: Sequence[int]) -> list[Token]:
    """The texts of token ids that have nothing to do with each other."""
    return [texts_of(model, [number])[0] for number in ids]


def name_of(model: StandardizedTransformer) -> str:
    """What a title calls the model: its name, and of a folder's path the last part."""
    name = model._subject.name
    return Path(name).resolve().name if Path(name).is_dir() else name


def tokenizer_of(model: StandardizedTransformer) -> Any:
    """The model's tokenizer.

    Raises:
        InputError: it has none.
    """
    if model.tokenizer is None:
        raise InputError(f"{name_of(model)} has no tokenizer, and a picture names tokens. Open it with tokenizer=….")
    return model.tokenizer
