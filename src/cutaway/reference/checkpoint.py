"""A checkpoint's folder: finding it, reading its config, and fetching tensors under their standard names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cutaway.errors import LoadError, NoWeightsError, UnknownModelError
from cutaway.reference.config import PhiConfig
from cutaway.reference.parts import Array
from cutaway.reference.safetensors_file import SafetensorsFile
from cutaway.reference.weights import Weights

BUILT_IN = Path(__file__).parents[1] / "data"
"""The folder of the built-in checkpoints and configs, one folder each."""

_MAKER = "microsoft"
"""What the published checkpoints' names begin with: `microsoft/phi-2` is the built-in `phi-2`."""

_MOST = 8
"""Names listed in one message."""

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
    own_name = Path(*folder.parts[1:]) if folder.parts[:1] == (_MAKER,) else folder
    built_in = BUILT_IN / own_name
    if not folder.is_absolute() and ".." not in folder.parts and (built_in / "config.json").is_file():
        return built_in
    if folder.exists():
        raise UnknownModelError(f"{folder} is a file; give the folder that holds it and its config.json")
    names = sorted(str(path.parent.relative_to(BUILT_IN)) for path in BUILT_IN.rglob("config.json"))
    raise UnknownModelError(
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
    try:
        return PhiConfig.from_dict(config)
    except LoadError as error:
        raise LoadError(f"{path} is damaged: {error}") from error


class Tensors(Protocol):
    """Tensors under Phi's own names, wherever they are."""

    @property
    def where(self) -> str:
        """Where they are, for messages."""
        ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each."""
        ...

    def read(self, name: str, dtype: DTypeLike) -> Array:
        """One tensor, converted to `dtype`."""
        ...


class FolderTensors:
    """The tensors of a checkpoint's folder, in one safetensors file or in several with an index.

    Args:
        folder: the folder.

    Raises:
        LoadError: there are none, they are pickled, or a file is missing or damaged.
        NoWeightsError: the folder is a built-in config that comes without weights.
    """

    def __init__(self, folder: Path) -> None:
        self.where = str(folder)
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

    def __enter__(self) -> FolderTensors:
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.close()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor."""
        return {name: file.entries[name].shape for name, file in self._holder.items()}

    @property
    def natural_dtype(self) -> np.dtype[Any]:
        """float64 where a tensor is stored in it, float32 otherwise."""
        stored = {entry.dtype for file in self._files for entry in file.entries.values()}
        return np.dtype(np.float64 if "F64" in stored else np.float32)

    def read(self, name: str, dtype: DTypeLike) -> Array:
        """One tensor, converted to `dtype`."""
        return self._holder[name].read(name, dtype)


class GivenTensors:
    """Tensors that are already in memory. Where no conversion is needed, they are shared and not copied.

    Args:
        tensors: arrays by Phi's own names; anything that NumPy can read.
    """

    where = "the mapping given"

    def __init__(self, tensors: Mapping[str, ArrayLike]) -> None:
        self._arrays = {name: np.asarray(tensor) for name, tensor in tensors.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor."""
        return {name: array.shape for name, array in self._arrays.items()}

    def read(self, name: str, dtype: DTypeLike) -> Array:
        """One tensor, converted to `dtype`."""
        return self._arrays[name].astype(dtype, copy=False)


def weights_from(tensors: Tensors, expected: Mapping[str, tuple[int, ...]], *, tied: bool, dtype: DTypeLike) -> Weights:
    """Tensors as a source of weights, after holding them against what the model needs. Each is read when asked for.

    Args:
        tensors: the tensors.
        expected: shapes by standard name.
        tied: the head's weight is the embedding's; the tensors may hold it once more, if it is the same.
        dtype: what they are converted to.

    Raises:
        LoadError: tensors that are missing, left over, or of another shape; all kinds are named at once.
    """
    wanted = {native_name(name): shape for name, shape in expected.items()}
    found = dict(tensors.shapes)
    if tied and found.pop("lm_head.weight", None) is not None:
        _check_tied(tensors)
    missing, extra = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    wrong = [
        f"`{name}` is {list(found[name])}, expected {list(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    problems = [
        f"Missing: {_listed(missing)}. " if missing else "",
        f"Not part of the model: {_listed(extra)}. " if extra else "",
        f"Of another shape: {'; '.join(wrong[:_MOST])}. " if wrong else "",
    ]
    if any(problems):
        raise LoadError(
            f"the tensors in {tensors.where} are not those of the config. {''.join(problems)}"
            "Fetch the checkpoint again, or the config that belongs to it"
        )

    def source(name: str, shape: tuple[int, ...]) -> Array:
        return tensors.read(native_name(name), dtype)

    return source


def _check_tied(tensors: Tensors) -> None:
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    if embedding not in tensors.shapes:
        return
    if not np.array_equal(tensors.read(embedding, np.float64), tensors.read(head, np.float64)):
        raise LoadError(
            f"the config ties the head to the embedding (`tie_word_embeddings`), and in {tensors.where} `{head}` "
            f"differs from `{embedding}`; set it to false if the head is a matrix of its own"
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
        for weight, name in weight_map.items():
            if not isinstance(name, str) or not name or Path(name).name != name:
                raise LoadError(
                    f"{index} is damaged: `weight_map` says that `{weight}` is in {name!r}; it is to be the name of a "
                    "file beside it"
                )
        names = sorted(set(weight_map.values()))
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
    except RecursionError:
        raise LoadError(f"{path} cannot be read as JSON: it is nested too deep") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise LoadError(f"{path} is to hold a JSON object")
    return content


def _listed(names: Iterable[str]) -> str:
    """The names, sorted; a long list is cut and counted."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _MOST} more" if len(ordered) > _MOST else ""
    return ", ".join(f"`{name}`" for name in ordered[:_MOST]) + more
