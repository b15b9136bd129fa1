"""Building the site: every note is run, every page is made, and only then is anything written."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia import pages
from cutaway.encyclopedia.checkpoints import CHECKPOINTS
from cutaway.encyclopedia.classes import all_classes
from cutaway.encyclopedia.folder import check_folder, write_folder
from cutaway.encyclopedia.note import Note, Result, run_note
from cutaway.encyclopedia.notes import notes_of
from cutaway.encyclopedia.pages import FamilyPage, ShownResult
from cutaway.encyclopedia.prose import prose, python, sentence
from cutaway.encyclopedia.specimens import specimen_of
from cutaway.errors import InputError, did_you_mean
from cutaway.families import FAMILIES

if TYPE_CHECKING:
    from jinja2 import Environment

    from cutaway.model import StandardizedTransformer
    from cutaway.pictures.theme import ThemeName

_TEMPLATES = Path(__file__).parent / "templates"
_PICTURE_DPI = 180

Progress = Callable[[str], None]
"""Is told of each step before it is taken."""


class UnknownFamilyError(InputError):
    """No family has this name; the message lists those there are."""


def known_families(names: Iterable[str] = ()) -> list[str]:
    """These families, or all that have a page.

    Raises:
        UnknownFamilyError: a name is not that of a family.
    """
    there = [name for name in FAMILIES if name in CHECKPOINTS]
    wanted = list(names) or there
    for name in wanted:
        if name not in there:
            raise UnknownFamilyError(
                f"no family is called '{name}'; there are {', '.join(there)}.{did_you_mean(name, there)}"
            )
    return wanted


def steps_of(families: Sequence[str]) -> int:
    """How many steps a build of these families takes."""
    return sum(len(CHECKPOINTS[name]) + len(notes_of(name)) for name in families) + 1


def build(
    folder: str | Path = "site",
    *,
    families: Iterable[str] = (),
    force: bool = False,
    models: Mapping[str, StandardizedTransformer] = MappingProxyType({}),
    progress: Progress = lambda _: None,
) -> list[Path]:
    """Builds the site into a folder, and returns the paths of its files.

    Args:
        folder: where to; it is made where it does not exist.
        families: by name; all by default.
        force: whether to write into a folder that holds other files.
        models: by how they are called, models on which the notes of their families run, in the place of the usual ones.
        progress: called with what is done next, `steps_of` times.

    Raises:
        UnknownFamilyError: a name is not that of a family.
        InputError: a model is of a family that has no page, or none that is built.
        OutputError: the folder holds other files, or cannot be written to.
        NoteError: a note does not hold, or could not be run. Nothing is written then.
    """
    folder = Path(folder)
    names = known_families(families)
    check_folder(folder, force=force)
    files: dict[str, bytes] = {}
    given = {model._subject.family.name: (model, called) for called, model in models.items()}
    for family, (_, called) in given.items():
        if family not in names:
            raise InputError(f"{called} is of the family '{family}', and the pages are of {', '.join(names)}.")
    made = [_family(name, files, progress, given.get(name)) for name in names]
    progress("writing pages")
    files.update(_render(made))
    write_folder(folder, files)
    return [folder / name for name in files]


def _family(
    name: str, files: dict[str, bytes], progress: Progress, given: tuple[StandardizedTransformer, str] | None
) -> FamilyPage:
    titles = iter(CHECKPOINTS[name])
    progress(f"{name}: {next(titles).short}")
    page = pages.family_page(name, lambda: progress(f"{name}: {c.short}") if (c := next(titles, None)) else None)
    model, called = given or specimen_of(name)
    results: list[ShownResult] = []
    for note in notes_of(name):
        progress(f"{name}: {note.title}")
        results.append(_shown(note, run_note(note, model, called), model, name, files))
    real = given is not None or not called.startswith("a tiny random")
    return replace(page, specimen=called, specimen_is_real=real, results=results)


def _shown(
    note: Note, result: Result, model: StandardizedTransformer, family: str, files: dict[str, bytes]
) -> ShownResult:
    if note.picture is None or result.does_not_apply:
        return ShownResult(result)
    names: dict[str, str] = {}
    alt, size = "", (0, 0)
    themes: tuple[ThemeName, ThemeName] = ("light", "dark")
    for theme in themes:
        picture = note.picture(model, theme)
        names[theme] = f"assets/{family}-{note.name}-{theme}.png"
        png = picture.to_png(_PICTURE_DPI)
        files[names[theme]] = png
        alt = f"{picture.title}. {picture.description}"
        width, height = struct.unpack(">II", png[16:24])
        size = round(width * 96 / _PICTURE_DPI), round(height * 96 / _PICTURE_DPI)
    return ShownResult(result, names["light"], names["dark"], alt, size)


def _render(made: list[FamilyPage]) -> dict[str, bytes]:
    from cutaway.version import __version__

    environment = _environment()
    classes = all_classes()
    words = {"families": made, "version": __version__, "classes": classes}
    texts = {
        "index.html": environment.get_template("index.html.j2").render(**words, root="", here="index"),
        "glossary.html": environment.get_template("glossary.html.j2").render(
            **words, root="", here="glossary", **pages.glossary(made)
        ),
        "assets/encyclopedia.css": environment.get_template("encyclopedia.css.j2").render(**_themes()),
        "assets/encyclopedia.js": (_TEMPLATES / "encyclopedia.js").read_text(encoding="utf-8"),
    }
    if classes is not None:
        texts["classes.html"] = environment.get_template("classes.html.j2").render(**words, root="", here="classes")
    for page in made:
        more = {"page": page, "native": pages.native_rows(page.columns), "sizes": pages.size_rows(page.columns)}
        texts[f"{page.name}.html"] = environment.get_template("family.html.j2").render(
            **words, **more, root="", here=page.name
        )
        texts[f"source/{page.name}.html"] = environment.get_template("source.html.j2").render(
            **words, page=page, root="../", here=""
        )
    return {name: text.encode("utf-8") for name, text in texts.items()}


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(prose=prose, python=python, sentence=sentence)
    return environment


def _themes() -> dict[str, Any]:
    from cutaway.pictures.theme import THEMES

    return {"light": THEMES["light"], "dark": THEMES["dark"]}
