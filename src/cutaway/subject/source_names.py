"""What the name of a checkpoint stands for: a built-in one, a folder, or a hub id."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cutaway.errors import UnknownModelError, did_you_mean
from cutaway.families import FAMILIES

SHIPPED_CONFIGS = {
    "microsoft/phi-1": "phi-1",
    "microsoft/phi-1_5": "phi-1_5",
    "microsoft/phi-2": "phi-2",
}
"""Hub ids whose config is in the package, so that they can be looked at with no download."""

BUILT_IN = "phi-mini"
"""The checkpoint that is in the package, weights and all."""


def data_folder(name: str) -> Path:
    """A folder of the package's data."""
    return Path(str(files("cutaway") / "data" / name))


def locate(name: str) -> str:
    """The folder or hub id that a name stands for."""
    if name == BUILT_IN:
        return str(data_folder(BUILT_IN))
    if not name.strip():
        raise UnknownModelError("a model's name is empty. Give a hub id, a folder, or 'phi-mini'.")
    path = Path(name).expanduser()
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:  # longer than a name may be, or with a NUL in it
        raise UnknownModelError(f"no folder and no model has a name of {len(name)} characters like this.") from error
    if is_folder:
        return str(path)
    if path.exists():
        raise UnknownModelError(f"{name} is a file. Give the folder that holds config.json and the weights.")
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name
    if looks_like_path:
        raise UnknownModelError(f"there is no folder {name}.")
    if "/" not in name:
        raise UnknownModelError(
            f"'{name}' is neither a built-in model nor a folder here, and a hub id has the form 'owner/name'."
            f"{known_like(name)}"
        )
    return name


def known_like(name: str) -> str:
    """A sentence that offers well-known models whose names are near to the one given."""
    known = [BUILT_IN, *(hub for family in FAMILIES.values() for hub in family.checkpoints)]
    same = [hub for hub in known if hub.rpartition("/")[2].lower() == name.lower()]
    short = {hub.rpartition("/")[2]: hub for hub in known}
    return f" Did you mean '{same[0]}'?" if same else did_you_mean(name, [*known, *short], shown=short)
