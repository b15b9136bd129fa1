"""The families: one short file each, which says what its modules are called and where its values are."""

from cutaway.families.family import Family
from cutaway.families.registry import FAMILIES, family_of

__all__ = ["FAMILIES", "Family", "family_of"]
