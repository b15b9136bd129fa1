"""`cutaway notes MODEL`: the encyclopedia's notes, run on any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cutaway.cli.options import Json, Loading, Model, opens_a_model
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.encyclopedia import Note
    from cutaway.model import StandardizedTransformer


@opens_a_model
def notes(
    model: Model,
    loading: Loading,
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose notes to run; by default the model's own family.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a family's notes on a model.

    Prints what each claims and measured, and why one is left out; ends with status 1 where one fails.
    """
    from cutaway.cli.opening import open_model
    from cutaway.cli.terminal import is_terminal, print_json, say, show, waiting

    with waiting("starting torch and transformers"):
        from cutaway.encyclopedia import NoteError, notes_of
        from cutaway.encyclopedia.site import known_families
    if family is not None:
        known_families([family])
    opened = open_model(model, loading)
    own = opened._subject.family.name
    if family is not None and family != own:
        raise InputError(f"{model} is of the family '{own}', and these notes are about '{family}'.")
    found = notes_of(own)
    outcomes: list[Outcome] = []
    for note in found:
        with waiting(note.title):
            outcome = run(note, opened, model)
        outcomes.append(outcome)
        if not as_json:
            show(outcome.rich()) if is_terminal() else say(outcome.text())
    if as_json:
        print_json({"model": model, "family": own, "notes": [outcome.to_dict() for outcome in outcomes]})
    elif not found:
        say(f"nobody has written notes about the family '{own}' yet.")
    failed = [outcome for outcome in outcomes if outcome.verdict == "fails"]
    if failed:
        told = "; ".join(f"'{outcome.note.title}': {outcome.why.rstrip('.')}" for outcome in failed)
        do = "does" if len(failed) == 1 else "do"
        message = f"{len(failed)} of {len(found)} notes {do} not hold on {model}. {told}."
        raise NoteError(message, told) from failed[0].error


@dataclass(frozen=True)
class Outcome:
    """What came of a note.

    Attributes:
        note: which.
        verdict: `holds`, `fails`, or `left out`, where it does not apply or could not be run.
        claim: the statement, with its figures where they were measured.
        figures: by their names, as they are written.
        why: what failed and the figure measured, or why the note is left out.
        error: what `fails` came by.
    """

    note: Note
    verdict: Literal["holds", "fails", "left out"]
    claim: str
    figures: dict[str, str]
    why: str = ""
    error: Exception | None = None

    def to_dict(self) -> dict[str, Any]:
        """As data: `name`, `title`, `verdict`, `claim`, `why` or null, and `figures`, each in words and its value."""
        figures = {name: {"what": self.note.figures[name], "value": told} for name, told in self.figures.items()}
        return {
            "name": self.note.name,
            "title": self.note.title,
            "verdict": self.verdict,
            "claim": self.claim,
            "why": self.why or None,
            "figures": figures,
        }

    def text(self) -> str:
        """In plain lines: the title, the claim, and a line a figure, its value after a tab."""
        lines = [f"{_MARKS[self.verdict][0]} {self.note.title}"]
        if self.verdict != "left out":
            lines.append(f"  {self.claim}")
        lines += [f"  {self.note.figures[name]}\t{told}" for name, told in self.figures.items()]
        lines += [f"  {_WHY[self.verdict]}{self.why}"] if self.why else []
        return "\n".join([*(line.replace("`", "") for line in lines), ""])

    def rich(self) -> Any:
        """The same for a terminal."""
        from rich.console import Group
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        from cutaway.inspection.printout.terminal_support import prose

        mark, style = _MARKS[self.verdict]
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(style="dim")
        table.add_column()
        for name, told in self.figures.items():
            table.add_row(prose(self.note.figures[name]), prose(told))
        parts: list[Any] = [Text(f"{mark} ", style=style) + Text(self.note.title, style="bold")]
        if self.verdict != "left out":
            parts.append(Padding(prose(self.claim), (0, 0, 0, 2)))
        if self.figures:
            parts.append(Padding(table, (0, 0, 0, 2)))
        if self.why:
            parts.append(Padding(Text(_WHY[self.verdict]) + prose(self.why), (0, 0, 0, 2)))
        return Group(*parts, Text())


_MARKS = {"holds": ("✓", "bold green"), "fails": ("✗", "bold red"), "left out": ("–", "dim")}
_WHY = {"holds": "", "fails": "does not hold: ", "left out": "left out: "}


def run(note: Note, model: StandardizedTransformer, name: str) -> Outcome:
    """Runs a note, whatever comes of it."""
    from cutaway.encyclopedia import NoteError, NoteNotRunError, run_note

    try:
        result = run_note(note, model, name)
    except NoteNotRunError as error:
        return Outcome(note, "left out", note.claim, {}, error.why)
    except NoteError as error:
        return Outcome(note, "fails", " ".join(error.claim.split()), {}, error.why, error)
    if result.does_not_apply:
        return Outcome(note, "left out", note.claim, {}, result.does_not_apply)
    return Outcome(note, "holds", " ".join(result.claim.split()), dict(result.figures))
