"""The families that have a file, and finding the one that covers a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutaway.errors import CutawayError, UnsupportedModelError
from cutaway.families.family import Family
from cutaway.families.gpt2 import GPT2
from cutaway.families.gpt_neox import GPT_NEOX
from cutaway.families.llama import LLAMA
from cutaway.families.phi import PHI

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FAMILIES: dict[str, Family] = {family.name: family for family in (PHI, LLAMA, GPT2, GPT_NEOX)}
"""All families by name."""


def family_of(architecture: str, config: PretrainedConfig) -> Family:
    """The family that covers a transformers class, as it is under this config.

    Raises:
        UnsupportedModelError: no family file covers the class, or its file does not hold under a setting.
    """
    for family in FAMILIES.values():
        if architecture in family.architectures:
            return family.of_config(config)
    raise uncovered(architecture)


def register(family: Family) -> None:
    """Adds a family that is written outside the package, for as long as the process lasts.

    Raises:
        CutawayError: another family has its name or covers one of its architectures.
    """
    for other in FAMILIES.values():
        shared = {other.name, *other.architectures} & {family.name, *family.architectures}
        if shared:
            raise CutawayError(f"the family '{other.name}' stands for {', '.join(sorted(shared))} already.")
    FAMILIES[family.name] = family


def uncovered(architecture: str, model: str = "") -> UnsupportedModelError:
    """The error for a class without a family file; it says what to write, and how to begin."""
    who = f"{model} is a {architecture}, which no family file covers" if model else ""
    covered = ", ".join(name for family in FAMILIES.values() for name in family.architectures)
    return UnsupportedModelError(
        f"{who or f'no family file covers {architecture}'}. Covered: {covered}. To add it, write one file of names and "
        "sites in `cutaway/families/`, as CONTRIBUTING.md tells under 'Add a family'. For a first draft of it, load "
        "the model with transformers and say `print(cutaway.families.propose(model))`."
    )
