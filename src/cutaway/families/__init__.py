"""The families: one short file each, which says what its modules are called and where its values are.

`propose(model)` drafts the file of a family that has none; `register(family)` adds one that is written elsewhere.
"""

from cutaway.families.family import Family, Refusal, Variant
from cutaway.families.proposal import propose
from cutaway.families.registry import FAMILIES, family_of, family_of_model, register, uncovered

__all__ = [
    "FAMILIES",
    "Family",
    "Refusal",
    "Variant",
    "family_of",
    "family_of_model",
    "propose",
    "register",
    "uncovered",
]
