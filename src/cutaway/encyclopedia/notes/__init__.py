"""The notes of each family, in the order in which its page tells them."""

from __future__ import annotations

from cutaway.encyclopedia.note import Note
from cutaway.encyclopedia.notes import (
    gpt2,
    gpt_neox,
    llama,
    phi_attention,
    phi_block,
    phi_checkpoints,
    phi_float16,
    phi_stream,
    phi_tokens,
)
from cutaway.errors import InputError

_NOTES: dict[str, tuple[Note, ...]] = {
    "phi": (
        phi_block.one_norm,
        phi_block.sum_order,
        phi_block.no_path_inside_a_block,
        phi_block.biases_everywhere,
        phi_block.dropout_is_idle,
        phi_attention.partial_rotary,
        phi_attention.pairs_half_apart,
        phi_attention.query_key_norm,
        phi_attention.one_softmax,
        phi_float16.float16_under_eager,
        phi_stream.position_zero,
        phi_stream.constant_lens,
        phi_stream.induction_head,
        phi_tokens.padded_vocabulary,
        phi_tokens.runs_of_spaces,
        phi_checkpoints.three_checkpoints,
    ),
    "llama": (llama.sequential, llama.grouped_heads, llama.gated_mlp, llama.rms_norm, llama.no_biases),
    "gpt2": (gpt2.positions_added_once, gpt2.fused_projection, gpt2.tied_head, gpt2.transposed_weights, gpt2.sum_order),
    "gpt_neox": (
        gpt_neox.two_norms,
        gpt_neox.sum_order,
        gpt_neox.interleaved_projection,
        gpt_neox.quarter_rotary,
        gpt_neox.sequential_variant,
    ),
}


def add_notes(family: str, *notes: Note) -> None:
    """Adds notes to a family's, for as long as the process lasts: `cutaway notes` runs them, and its page tells them.

    Raises:
        InputError: the family has a note of this name.
    """
    known = {note.name for note in notes_of(family)}
    twice = [note.name for note in notes if note.name in known]
    if twice:
        raise InputError(f"the family '{family}' has a note '{twice[0]}' already.")
    _NOTES[family] = (*notes_of(family), *notes)


def notes_of(family: str) -> tuple[Note, ...]:
    """The notes of a family, by its name; none where nobody has written one yet."""
    return _NOTES.get(family, ())
