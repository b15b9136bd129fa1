"""The families: one short file each, which says what its modules are called and where its values are.

`propose(model)` drafts the file of a family that has none; `register(family)` adds one that is written elsewhere.
"""

from cutaway.families.derivation import derive, propose
from cutaway.families.family import Family, Kind, Refusal, TakenOff, Variant
from cutaway.families.registry import BUILT_IN, FAMILIES, family_of, family_of_model, register, uncovered
from cutaway.families.stream import times

__all__ = [
    "BUILT_IN",
    "FAMILIES",
    "Family",
    "Kind",
    "Refusal",
    "TakenOff",
    "Variant",
    "derive",
    "family_of",
    "family_of_model",
    "propose",
    "register",
    "times",
    "uncovered",
]
