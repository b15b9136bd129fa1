"""Where a family keeps the matrices of the standard vocabulary: in which module, and beside which others.

Which way a matrix lies follows from the module's class, and is no business of a family file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stored:
    """The module that holds a matrix, by its standard or its own name on the matrix's host.

    Attributes:
        beside: the matrices that the module's output holds side by side, in order, this one among them; empty where it
            holds this one alone.
        by_head: whether they stand side by side within each key head, and not each whole.
    """

    module: str
    beside: tuple[str, ...] = ()
    by_head: bool = False


def stored_in(module: str) -> Stored:
    """A matrix in a module of its own."""
    return Stored(module)


def fused(module: str, *matrices: str, by_head: bool = False) -> Mapping[str, Stored]:
    """Several matrices in one module: `fused("c_attn", "W_Q", "W_K", "W_V")`."""
    return {matrix: Stored(module, matrices, by_head) for matrix in matrices}


USUAL_WEIGHTS: Mapping[str, Stored] = {
    "W_E": stored_in("embed_tokens"),
    "W_Q": stored_in("q_proj"),
    "W_K": stored_in("k_proj"),
    "W_V": stored_in("v_proj"),
    "W_O": stored_in("o_proj"),
    "W_gate": stored_in("gate_proj"),
    "W_in": stored_in("up_proj"),
    "W_out": stored_in("down_proj"),
    "W_U": stored_in("lm_head"),
}
"""Where each matrix is, in the standard names of modules. One whose module a family has not named does not exist."""
