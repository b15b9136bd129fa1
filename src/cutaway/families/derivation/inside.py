"""Inside a block: where queries, patterns, neurons, choices of experts and norms are, by what was called with what."""

from __future__ import annotations

from cutaway.families.derivation.attention import attention
from cutaway.families.derivation.block import Block
from cutaway.families.derivation.finder import Finder, Inside
from cutaway.families.derivation.mixer import mixer
from cutaway.families.derivation.mlp import mlp
from cutaway.families.derivation.norms import norms
from cutaway.families.derivation.recording import Recording


def look_inside(recording: Recording, block: Block) -> Inside:
    """Finds it."""
    finder = Finder(recording, block)
    attention(finder)
    mixer(finder)
    mlp(finder)
    norms(finder)
    return finder.found
