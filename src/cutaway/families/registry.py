"""The families that have a file, and finding the one that covers a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutaway.errors import UnsupportedModelError
from cutaway.families.family import Family
from cutaway.families.phi import PHI

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FAMILIES: dict[str, Family] = {family.name: family for family in (PHI,)}
"""All families by name."""


def family_of(architecture: str, config: PretrainedConfig) -> Family:
    """The family that covers a transformers class, once it has agreed to the config.

    Raises:
        UnsupportedModelError: no family file covers the class, or its file has not considered a setting.
    """
    for family in FAMILIES.values():
        if architecture in family.architectures:
            family.refuse_unknown_settings(config)
            return family
    covered = ", ".join(name for family in FAMILIES.values() for name in family.architectures)
    raise UnsupportedModelError(
        f"no family file covers {architecture}. Covered: {covered}. To add it, write one file of names and sites in "
        "`cutaway/families/`, as CONTRIBUTING.md tells under 'Add a family'."
    )
