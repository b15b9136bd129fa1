"""A checkpoint's files, looked at before transformers reads them.

transformers trusts what it reads: a damaged file comes out as whatever error it leads to, and an index may name files
anywhere on the disk. So each file that says something of the others, or of sizes, is read here first, and what is wrong
with it is told with the file's name and the field's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import PretrainedConfig

from cutaway.errors import CutawayError, LoadError
from cutaway.families import FAMILIES, Family

_AGAIN = "Fetch the checkpoint again."


def read_json(path: Path) -> dict[str, Any]:
    """A file that is to hold a JSON object.

    Raises:
        LoadError: it cannot be read, or holds something else; it names the file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise LoadError(f"{path} is damaged: it is nested too deep to be read. {_AGAIN}") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} is damaged: {one_line(error)}. {_AGAIN}") from error
    if not isinstance(content, dict):
        raise LoadError(
            f"{path} is damaged: it is to hold a JSON object, and holds {_KINDS.get(type(content), 'nothing')}."
        )
    return content


def read_native_config(path: Path) -> dict[str, Any]:
    """A `config.json`, as it is written.

    Raises:
        LoadError: it cannot be read, or what it says of classes and sizes cannot be; it names the field.
    """
    native = read_json(path)
    architectures = native.get("architectures")
    if architectures is not None and not _are_words(architectures):
        raise LoadError(f"{path} is damaged: `architectures` is {architectures!r}; it is to be a list of class names.")
    model_type = native.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        raise LoadError(f"{path} is damaged: `model_type` is {model_type!r}; it is to be a word.")
    of = [family for family in FAMILIES.values() if set(architectures or ()) & set(family.architectures)]
    keys = [key for family in of for key in (*family.config_keys(), *_FURTHER)]
    check_sizes({key: native[key] for key in keys if key in native}, of, str(path))
    return native


def check_config(config: PretrainedConfig, family: Family, where: str) -> None:
    """Raises where a config's sizes are none.

    Raises:
        LoadError: naming the field.
    """
    further = {key: getattr(config, key) for key in _FURTHER if hasattr(config, key)}
    check_sizes({key: getattr(config, key, None) for key in family.config_keys()} | further, [family], where)


def check_sizes(sizes: Mapping[str, Any], families: Iterable[Family], where: str) -> None:
    """Raises where one of these is not a positive whole number, or null where that stands for a default."""
    optional = {family.sizes[name] for family in families for name in _MAY_BE_LEFT_OUT if name in family.sizes}
    for key, size in sizes.items():
        if size is None and key in optional:
            continue
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            shown = "null" if size is None else repr(size)
            raise LoadError(f"{where} cannot be used: `{key}` is {shown}; it is to be a whole number above 0.")


_FURTHER = ("max_position_embeddings",)
"""Sizes that have no standard name."""

_MAY_BE_LEFT_OUT = ("num_kv_heads", "head_dim", "qk_head_dim", "intermediate_size")


def check_beside_weights(folder: Path) -> None:
    """Raises where an index of weights names anything but files of its own folder, or another file that is read with
    the weights is damaged.

    Raises:
        LoadError: naming the file and the field.
    """
    if (folder / "generation_config.json").is_file():
        read_json(folder / "generation_config.json")
    for index in sorted(folder.glob("*.index.json")):
        content = read_json(index)
        names = content.get("weight_map")
        if not isinstance(names, dict) or not names:
            raise LoadError(f"{index} is damaged: `weight_map` is to say for each weight in which file it is. {_AGAIN}")
        if not isinstance(content.get("metadata"), dict):
            raise LoadError(f"{index} is damaged: `metadata` is to be a JSON object, an empty one at least. {_AGAIN}")
        for weight, name in names.items():
            if not isinstance(name, str) or not name or Path(name).name != name or "\\" in name:
                raise LoadError(
                    f"{index} is damaged: `weight_map` says that `{weight}` is in {name!r}; it is to be the name of a "
                    "file beside it."
                )
        absent = sorted({name for name in names.values() if not (folder / name).is_file()})
        if absent:
            raise LoadError(f"{folder} lacks {', '.join(absent)}, which {index.name} names. {_AGAIN}")


def damaged_file(folder: Path) -> str:
    """The first of a folder's files that cannot be read, and what is wrong with it; empty where all can be."""
    for path in sorted(folder.glob("*.json")):
        try:
            read_json(path)
        except LoadError as error:
            if path.name != "vocab.json" or "JSON object" not in str(error):
                return str(error)
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(str(path), framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            return f"{path} is damaged: {one_line(error)}. {_AGAIN}"
    return ""


def one_line(error: BaseException) -> str:
    """What an error says, in one line, and its kind where that is all it says."""
    said = " ".join(str(error).split()).rstrip(".")
    if not said or isinstance(error, (KeyError, RecursionError)):
        said = f"{type(error).__name__}{f' {said}' if said else ''}"
    return said if len(said) <= 400 else f"{said[:400]}…"


@contextlib.contextmanager
def as_load_errors(what: str, hint: str = "", folder: Path | None = None) -> Generator[None]:
    """Has whatever goes wrong in here come out as a `LoadError`: of the file of a folder that is damaged, if one is."""
    try:
        yield
    except CutawayError:
        raise
    except Exception as error:
        damaged = damaged_file(folder) if folder is not None and folder.is_dir() else ""
        if damaged:
            raise LoadError(f"{what.partition(' cannot ')[0]} are damaged: {damaged}") from error
        raise LoadError(f"{what}: {one_line(error)}.{hint}") from error


_KINDS: dict[type, str] = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "a yes or no"}


def _are_words(thing: Any) -> bool:
    return isinstance(thing, list) and all(isinstance(item, str) for item in thing)
