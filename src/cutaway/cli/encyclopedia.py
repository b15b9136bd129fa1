"""`cutaway encyclopedia build` and `serve`: the pages, made and shown."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.frame import Group
from cutaway.cli.options import Debug, Loading, opens_a_model, refuse_without_model

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

encyclopedia = typer.Typer(
    cls=Group,
    help="Build the encyclopedia, or show it. A page a family, every statement on it run.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Folder = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the site is.")]
FamilyNames = Annotated[
    list[str] | None, typer.Option("--family", metavar="NAME", help="A family to build; all by default.")
]
On = Annotated[
    str | None,
    typer.Option("--on", metavar="MODEL", help="Run the notes of MODEL's family on it.", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that holds other files.")]


@encyclopedia.command("build")
@opens_a_model
def build_command(
    loading: Loading, out: Folder = Path("site"), family: FamilyNames = None, on: On = None, force: Force = False
) -> None:
    """Build the site. Runs every note; writes nothing if one does not hold."""
    if on is None:
        refuse_without_model(loading)
        _build(out, family or [], force)
        return
    from cutaway.cli.opening import open_model

    _build(out, family or [], force, {on: open_model(on, loading)})


@encyclopedia.command("serve")
def serve_command(
    out: Folder = Path("site"),
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 takes any that is free.")] = 8000,
    debug: Debug = False,
) -> None:
    """Show the site to this machine alone. Builds it first where there is none."""
    from cutaway.cli.terminal import say
    from cutaway.encyclopedia.folder import LISTING
    from cutaway.encyclopedia.serving import Server

    with Server(out, port) as server:
        if not (out / LISTING).is_file():
            _build(out, [], force=False)
        say(f"the encyclopedia is at {server.url} (Ctrl-C ends it)")
        server.run()


def _build(
    out: Path, families: list[str], force: bool, models: Mapping[str, StandardizedTransformer] = MappingProxyType({})
) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from cutaway.cli.terminal import console, say, waiting

    with waiting("starting torch and transformers"):
        from cutaway.encyclopedia.folder import check_folder
        from cutaway.encyclopedia.site import build, known_families, steps_of

    names = known_families(families)
    check_folder(out, force=force)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    target = console(stderr=True)
    with Progress(*columns, console=target, disable=not target.is_terminal) as bar:
        task = bar.add_task("starting", total=steps_of(names))
        taken = count()
        files = build(
            out,
            families=names,
            force=force,
            models=models,
            progress=lambda step: bar.update(task, completed=next(taken), description=step),
        )
        bar.update(task, completed=next(taken), description="done")
    size = sum(file.stat().st_size for file in files)
    say(f"{len(files)} files, {size / 1e6:.1f} MB: {out / 'index.html'}")
