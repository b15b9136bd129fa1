"""Words of other libraries for what has a name here, so that whoever knows them is told ours.

One table for every error that does not know a name. A row holds for the last part of a name: of
`blocks.3.hook_resid_post` that is `hook_resid_post`, and `hook_` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from cutaway.errors import did_you_mean
from cutaway.vocabulary.other_arguments import ARGUMENTS
from cutaway.vocabulary.other_words import LENS, NAMES


def near(
    given: str,
    names: Iterable[str],
    shown: Mapping[str, str] = MappingProxyType({}),
    layer: int | None = None,
) -> str:
    """A sentence, with a space before it, that says what a name is called here, or offers the names nearest to it.

    `shown` says how a name is written in the sentence, where that is not as it is; `layer` is the layer that was asked.
    """
    return elsewhere(given, layer) or did_you_mean(given, names, shown=shown)


def elsewhere(given: str, layer: int | None = None) -> str:
    """A sentence that says what another library's word is here, with a space before it; empty for any other word."""
    *places, last = given.split(".")
    word = last.removeprefix("hook_")
    number = next((part for part in places if re.fullmatch(r"-?\d+", part)), "*" if layer is None else str(layer))
    for library, words in NAMES.items():
        ours = words.get(word, words.get(last))
        if ours is not None and (library == LENS or word == last):
            return _sentence(library, given, ours.format(layer=number) if "{layer}" in ours else ours)
    return ""


def near_argument(given: str, names: Iterable[str]) -> str:
    """A sentence, with a space before it, that says what an argument is here, or offers the names nearest to it."""
    return argument_elsewhere(given) or did_you_mean(given, names)


def argument_elsewhere(given: str) -> str:
    """A sentence that says what another library's argument is here, with a space before it; empty for any other."""
    for library, words in ARGUMENTS.items():
        if given in words:
            return _sentence(library, given, words[given])
    return ""


def _sentence(library: str, given: str, ours: str) -> str:
    return f" {library}'s `{given}` is {'' if ours.startswith('not ') else 'here '}{ours}."
