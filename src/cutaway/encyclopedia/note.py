"""A note: a statement about a family, as a function that shows it.

The function takes a model, asserts what the note states and returns its figures. Its docstring is the claim, with
places for the figures: `{blocks}` stands for the figure of that name, `{model}` for the model's name. What a page shows
as the note's code is the source of the very function that ran.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.failure import failure_of
from cutaway.encyclopedia.figures import shown
from cutaway.errors import CutawayError, InputError, LongPromptWarning

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer
    from cutaway.pictures import Picture
    from cutaway.pictures.theme import ThemeName

Figures = Mapping[str, Any]
"""What a note measured, by the names of its figures."""

Check = Callable[["StandardizedTransformer"], Figures]
"""A note's function."""

Drawing = Callable[["StandardizedTransformer", "ThemeName"], "Picture"]
"""Draws a note's picture."""


class NoteError(CutawayError, AssertionError):
    """A note does not hold on a model; the message names both, what failed and the figure measured.

    Attributes:
        why: what failed, alone.
        claim: the statement, with such figures as were measured before it failed.
    """

    def __init__(self, message: str, why: str, claim: str = "") -> None:
        super().__init__(message)
        self.why = why
        self.claim = claim


class NoteNotRunError(NoteError):
    """A note could not be run on a model, so that nothing is known of what it states; `why` says it in a line."""


class DoesNotApply(Exception):
    """Raised by a note that has nothing to say about a model; the message says why."""


@dataclass(frozen=True)
class Reported:
    """A figure that needs weights which are not at hand: its value, and of which model and load it was told."""

    figure: str
    value: str
    of: str


@dataclass(frozen=True)
class Note:
    """A statement that can be run.

    `figures` says in words what each figure is; `on` says of what they are, where that is not the model given.
    """

    name: str
    title: str
    check: Check
    figures: Mapping[str, str]
    reported: tuple[Reported, ...] = ()
    picture: Drawing | None = None
    on: str = ""

    @property
    def claim(self) -> str:
        """The statement, its figures not filled in."""
        return re.sub(r"\s*\n\s*", " ", inspect.cleandoc(self.check.__doc__ or ""))

    @property
    def source(self) -> str:
        """The function that runs, without its decorator and its docstring, which stand on the page as text."""
        text = textwrap.dedent(inspect.getsource(self.check))
        function = ast.parse(text).body[0]
        assert isinstance(function, ast.FunctionDef)
        lines = text.splitlines()
        start = function.body[0].end_lineno or function.lineno  # the docstring's last line
        return "\n".join([lines[function.lineno - 1], *lines[start:]])


@dataclass(frozen=True)
class Result:
    """What a note gave on a model: its figures as they are shown, or why it does not apply."""

    note: Note
    model: str
    figures: Mapping[str, str]
    seconds: float
    does_not_apply: str = ""

    @property
    def claim(self) -> str:
        """The statement with its figures; where the note does not apply, why."""
        if self.does_not_apply:
            return self.does_not_apply
        return self.note.claim.format(model=self.model, **self.figures)


def note(
    title: str,
    *,
    figures: Mapping[str, str],
    reported: Sequence[Reported] = (),
    picture: Drawing | None = None,
    on: str = "",
) -> Callable[[Check], Note]:
    """Makes a note of a function that takes a model, asserts, and returns figures.

    Args:
        title: the statement in a few words.
        figures: what each figure is that the function returns, in words.
        reported: the same figures for models whose weights are not at hand.
        picture: draws what one would rather look at.
        on: of what the figures are, where that is not the model given.
    """

    def decorate(check: Check) -> Note:
        return Note(check.__name__, title, check, figures, tuple(reported), picture, on)

    return decorate


def run_note(note: Note, model: StandardizedTransformer, name: str) -> Result:
    """Runs a note on a model that is called `name`.

    Raises:
        NoteError: an assertion fails.
        NoteNotRunError: something else goes wrong, or a figure is missing.
    """
    import torch

    started = time.perf_counter()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("error", LongPromptWarning)  # what a model was not trained for says nothing of it
            torch.manual_seed(0)
            measured = dict(note.check(model))
        if set(measured) != set(note.figures):
            raise KeyError(f"it promises the figures {sorted(note.figures)} and returned {sorted(measured)}")
    except DoesNotApply as reason:
        return Result(note, name, {}, time.perf_counter() - started, str(reason))
    except LongPromptWarning as reason:
        return Result(note, name, {}, time.perf_counter() - started, f"{str(reason).partition('. ')[0]}.")
    except InputError as error:
        if model.tokenizer is not None or "no tokenizer" not in str(error):
            raise _not_run(note, name, error) from error
        why = f"{name} came without a tokenizer, and this note runs a text."
        return Result(note, name, {}, time.perf_counter() - started, why)
    except AssertionError as error:
        failure = failure_of(error, note.check)
        claim = note.claim.format_map(_Filled({**failure.names, "model": name}))
        raise NoteError(f"{_named(note)} does not hold on {name}: {failure}", str(failure), claim) from error
    except Exception as error:
        raise _not_run(note, name, error) from error
    told = {key: shown(measured[key]) for key in note.figures}
    return Result(note, name, told, time.perf_counter() - started)


def _not_run(note: Note, model: str, error: Exception) -> NoteNotRunError:
    first = next(iter(str(error).splitlines()), "")
    why = first if isinstance(error, CutawayError) else f"{type(error).__name__}: {first}"
    return NoteNotRunError(f"{_named(note)} could not be run on {model}: {why}", why, note.claim)


def _named(note: Note) -> str:
    return f"the note '{note.title}' ({note.name})"


class _Filled(dict[str, str]):
    """Figures of which some were not measured."""

    def __missing__(self, name: str) -> str:
        return "…"
