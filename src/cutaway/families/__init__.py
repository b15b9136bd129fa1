"""The families: one short file each, which says what its modules are called and where its values are.

A model that none covers has its family derived when it is opened. `propose(model)` writes that as a file to start from;
`register(family)` adds one that is written elsewhere.
"""

from cutaway.families.derivation import derive, propose
from cutaway.families.family import Family, Kind, Refusal, TakenOff, Variant
from cutaway.families.registry import BUILT_IN, FAMILIES, family_of, family_of_model, register
from cutaway.families.stream import normed, times

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
    "normed",
    "propose",
    "register",
    "times",
]
