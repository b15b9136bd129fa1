"""The encyclopedia: a page a family, every statement on it run before it is shown.

`note` marks a function as a statement that can be checked, `notes/` holds those of each family, `checkpoints` the
configs and `specimens` the models on which they run. `parts` and `diagram/` draw the block from the family file,
`traits` tells families apart, and `site` makes pages of it all.

    from cutaway.encyclopedia import build

    build("site")
"""

from __future__ import annotations

from cutaway.encyclopedia.note import DoesNotApply, Note, NoteError, NoteNotRunError, Reported, Result, note, run_note
from cutaway.encyclopedia.notes import add_notes, notes_of
from cutaway.encyclopedia.site import build

__all__ = [
    "DoesNotApply",
    "Note",
    "NoteError",
    "NoteNotRunError",
    "Reported",
    "Result",
    "add_notes",
    "build",
    "note",
    "notes_of",
    "run_note",
]
