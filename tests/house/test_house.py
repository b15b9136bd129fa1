"""The house as CONTRIBUTING's table states it: imports run upward only, and no two files import each other."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
OPEN_TO_ALL = {"errors", "version", "files"}


def modules() -> dict[str, Path]:
    found = {}
    for file in sorted((SOURCE / "cutaway").rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = file
    return found


def imported(text: str, known: set[str]) -> set[str]:
    """The modules of ours that a file names in an import, wherever in the file that stands."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Dict):  # what is imported when it is first used: `_HOME = {name: module}`
            names = [
                str(value.value)
                for value in node.values
                if isinstance(value, ast.Constant) and value.value != "cutaway"
            ]
        for name in names:
            if name in known:
                found.add(name)
            elif name.rpartition(".")[0] in known:
                found.add(name.rpartition(".")[0])
    return found


@cache
def graph() -> dict[str, set[str]]:
    files = modules()
    known = set(files)
    return {name: imported(file.read_text(), known) - {name} for name, file in files.items()}


def cycle_in(edges: dict[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def table() -> dict[str, set[str]]:
    """The folders that each folder may import, by the table: those in its row, and what these may import."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)
    allowed: dict[str, set[str]] = {}
    for folder, column in rows:
        named = set(re.findall(r"`(\w+)`", column))
        assert named <= set(allowed), f"{folder}'s row stands below what it imports"
        allowed[folder] = named.union(*(allowed[name] for name in named))
    return allowed


def folder_of(module: str) -> str:
    return (*module.split("."), "")[1]


def test_every_folder_is_in_the_table():
    folders = {file.name for file in (SOURCE / "cutaway").iterdir() if file.is_dir() and file.name != "__pycache__"}
    assert folders == set(table())


@pytest.mark.parametrize("module", [name for name in modules() if "." in name])
def test_imports_run_upward(module):
    folder = folder_of(module)
    if folder in OPEN_TO_ALL:
        assert {folder_of(target) for target in graph()[module]} <= OPEN_TO_ALL
        return
    reached = {folder_of(target) for target in graph()[module]} - OPEN_TO_ALL - {folder}
    assert reached <= table()[folder], f"{module} imports {sorted(reached - table()[folder])}"


def test_no_two_files_import_each_other():
    assert cycle_in(graph()) is None


def test_a_pair_would_be_found():
    edges = {**graph(), "cutaway.vocabulary.values": {"cutaway.cli"}}
    found = cycle_in(edges)
    assert found is not None
    assert "cutaway.vocabulary.values" in found


def test_what_is_read_as_an_import():
    known = {"cutaway", "cutaway.a", "cutaway.a.b", "cutaway.c"}
    text = "import cutaway.c\ndef f():\n    from cutaway.a import b, other\n_HOME = {'x': 'cutaway.a'}\n"
    assert imported(text, known) == {"cutaway.c", "cutaway.a.b", "cutaway.a"}
