"""Passes that are given embeddings in the place of ids: what they lack."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.edits.rows import ModelCall
from cutaway.errors import UnavailableValueError
from cutaway.subject.address import Address
from cutaway.subject.names import Name, Picked, address_of
from cutaway.subject.subject import Subject
from cutaway.vocabulary import ValuePath


def refuse_without_ids(subject: Subject, address: Address, call: ModelCall) -> None:
    """Raises where a pass has no such value because it is given embeddings.

    Raises:
        UnavailableValueError: naming it.
    """
    if call.ids is None and _is_of_ids(subject, address):
        raise UnavailableValueError(
            f"`{address.path}` does not exist in this pass: it was given `inputs_embeds` in the place of ids, so the "
            "embedding does not run. The embeddings are the first block's `layer_input`, with positions where they are "
            "added; ids are known where the prompt is given as ids."
        )


def without_those_of_ids(subject: Subject, picked: Picked, call: ModelCall) -> Picked:
    """What selectors pick of a pass that may be given embeddings: patterns leave out what it lacks, names do not."""
    if call.ids is not None:
        return picked
    by_name = {path for path in picked.asked.values() if isinstance(path, str)}
    lacking = {
        str(name)
        for name in picked.names
        if str(name) not in by_name and not _is_derived(name) and _is_of_ids(subject, address_of(subject, name))
    }
    names: Sequence[Name] = [name for name in picked.names if str(name) not in lacking]
    if not names:
        return picked
    asked = {
        selector: paths if isinstance(paths, str) else tuple(path for path in paths if path not in lacking)
        for selector, paths in picked.asked.items()
    }
    return Picked(tuple(names), asked)


def _is_derived(name: Name) -> bool:
    return isinstance(name, ValuePath) and name.value.derived


def _is_of_ids(subject: Subject, address: Address) -> bool:
    if address.value is not None and address.value.name == "input_ids":
        return True
    return address.module_path == subject.module_path("model", None, "embed_tokens")
