"""A checkpoint's folder: finding it, reading its config, and fetching tensors under their standard names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cutaway.errors import LoadError, NoWeightsError
from cutaway.reference.config import PhiConfig
from cutaway.reference.parts import Array
from cutaway.reference.safetensors_file import SafetensorsFile
from cutaway.reference.weights import Weights

BUILT_IN = Path(__file__).parents[1] / "data"
"""The folder of the built-in checkpoints and configs, one folder each."""

_NATIVE = {"o_proj": "dense", "down_proj": "fc2", "norm": "final_layernorm"}


def native_name(name: str) -> str:
    """Phi's own name of a weight: `layers.0.mlp.down_proj.bias` is `model.layers.0.mlp.fc2.bias`."""
    words = [_NATIVE.get(word, word) for word in name.split(".")]
    return ".".join(words if words[0] == "lm_head" else ["model", *words])


def find_folder(name: str | Path) -> Path:
    """The folder of a checkpoint: a path, or the name of a built-in one.

    Raises:
        LoadError: there is neither; the message lists the built-in names.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    built_in = BUILT_IN / folder
    if not folder.is_absolute() and ".." not in folder.parts and (built_in / "config.json").is_file():
        return built_in
    if folder.exists():
        raise LoadError(f"{folder} is a file; give the folder that holds it and its config.json")
    names = sorted(str(path.parent.relative_to(BUILT_IN)) for path in BUILT_IN.rglob("config.json"))
    raise LoadError(
        f"'{name}' is neither a folder nor a built-in name ({', '.join(names) or 'there are none'}). "
        "The reference downloads nothing: give the folder of a checkpoint already on disk"
    )


def read_config(folder: Path) -> PhiConfig:
    """The folder's `config.json`.

    Raises:
        LoadError: it is not there, or is not a JSON object.
        UnsupportedModelError: it is not a config that the reference follows.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise LoadError(f"{folder} holds no config.json; a checkpoint is a folder with it and safetensors files")
    config = _read_json(path)
    return PhiConfig.from_dict(config)


class Tensors:
    """The tensors of a checkpoint, in one safetensors file or in several with an index.

    Args:
        folder: the checkpoint's folder.

    Raises:
        LoadError: there are none, they are pickled, or a file is missing or damaged.
        NoWeightsError: the folder is a built-in config that comes without weights.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: list[SafetensorsFile] = []
        self._holder: dict[str, SafetensorsFile] = {}
        try:
            for path in _files(folder):
                file = SafetensorsFile(path)
                self._files.append(file)
                self._holder.update(dict.fromkeys(file.entries, file))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Tensors:
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.close()

    @property
    def natural_dtype(self) -> np.dtype[Any]:
        """float64 where a tensor is stored in it, float32 otherwise."""
        stored = {entry.dtype for file in self._files for entry in file.entries.values()}
        return np.dtype(np.float64 if "F64" in stored else np.float32)

    def check(self, shapes: Mapping[str, tuple[int, ...]], *, tied: bool) -> None:
        """Hold the files against the weights of the model that the config describes.

        Args:
            shapes: shapes by standard name.
            tied: the head's weight is the embedding's; a file may hold it once more, if it is the same.

        Raises:
            LoadError: tensors that are missing, left over, or of another shape; all of them are named.
        """
        expected = {native_name(name): shape for name, shape in shapes.items()}
        found = set(self._holder)
        if tied and "lm_head.weight" in found:
            self._check_same("lm_head.weight", "model.embed_tokens.weight")
            found.remove("lm_head.weight")
        wrong = [
            f"`{name}` is {list(self._holder[name].entries[name].shape)}, expected {list(shape)}"
            for name, shape in expected.items()
            if name in found and self._holder[name].entries[name].shape != shape
        ]
        problems = [
            f"missing: {_listed(expected.keys() - found)}" if expected.keys() - found else "",
            f"not part of the model: {_listed(found - expected.keys())}" if found - expected.keys() else "",
            f"of another shape: {'; '.join(wrong)}" if wrong else "",
        ]
        if any(problems):
            raise LoadError(
                f"the tensors in {self.folder} are not those of its config.json. "
                f"{'. '.join(problem[0].upper() + problem[1:] for problem in problems if problem)}. "
                "Fetch the checkpoint again, or the config that belongs to it"
            )

    def weights(self, dtype: DTypeLike) -> Weights:
        """The tensors as a source of weights, converted to `dtype`. Each is read when it is asked for."""

        def source(name: str, shape: tuple[int, ...]) -> Array:
            native = native_name(name)
            return self._holder[native].read(native, dtype)

        return source

    def _check_same(self, name: str, other: str) -> None:
        if other in self._holder and not np.array_equal(
            self._holder[name].read(name, np.float64), self._holder[other].read(other, np.float64)
        ):
            raise LoadError(
                f"the config ties the head to the embedding (`tie_word_embeddings`) and `{name}` differs from "
                f"`{other}` in {self.folder}; set it to false if the head is a matrix of its own"
            )


def _files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        weight_map = _read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise LoadError(f"{index} is damaged: it has no `weight_map`")
        names = sorted({Path(str(name)).name for name in weight_map.values()})
        absent = [name for name in names if not (folder / name).is_file()]
        if absent:
            raise LoadError(f"{folder} lacks {', '.join(absent)}, which its index names. Fetch the checkpoint again")
        return [folder / name for name in names]
    pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickles:
        raise LoadError(
            f"{folder} holds {', '.join(pickles)}, which are pickles: reading one can run code. "
            "Convert the checkpoint to safetensors"
        )
    if folder.is_relative_to(BUILT_IN):
        raise NoWeightsError(
            f"the built-in '{folder.relative_to(BUILT_IN)}' is a config without weights; give the folder of a download "
            "to `Phi.from_pretrained`, or make random weights with `Phi.from_config`"
        )
    raise LoadError(f"{folder} holds no model.safetensors")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise LoadError(f"{path} is to hold a JSON object")
    return content


def _listed(names: Iterable[str], most: int = 8) -> str:
    """The names, sorted; a long list is cut and counted."""
    ordered = sorted(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(f"`{name}`" for name in ordered[:most]) + more
