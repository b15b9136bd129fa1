"""Damaged checkpoints: one kind of error that names the file and what is wrong in it, in both implementations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutaway import StandardizedTransformer
from cutaway.errors import LoadError
from cutaway.reference import Phi
from tests import tiny


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    tiny.fresh().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "spoilt"))


def config(**changes: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return spoil


def text(name: str, content: str | bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return spoil


def index(content: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        shutil.copy(folder / "model.safetensors", folder.parent / "outside.safetensors")
        (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
        where = str(folder.parent / "outside.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps(content).replace("OUTSIDE", where))

    return spoil


def header(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors"
        whole = path.read_bytes()
        size = int.from_bytes(whole[:8], "little")
        told = json.loads(whole[8 : 8 + size])
        change(told)
        new = json.dumps(told).encode()
        path.write_bytes(len(new).to_bytes(8, "little") + new + whole[8 + size :])

    return spoil


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def lies(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes((2**60).to_bytes(8, "little") + path.read_bytes()[8:])


def _first(told: dict[str, Any]) -> dict[str, Any]:
    return next(entry for name, entry in told.items() if name != "__metadata__")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "size of 0": (config(hidden_size=0), "config.json"),
    "negative layers": (config(num_hidden_layers=-1), "config.json"),
    "size in words": (config(num_attention_heads="four"), "config.json"),
    "size of a float": (config(vocab_size=64.5), "config.json"),
    "no json": (text("config.json", "{"), "config.json"),
    "empty": (text("config.json", ""), "config.json"),
    "a list": (text("config.json", "[1]"), "config.json"),
    "no utf-8": (text("config.json", b"\xff\xfe{}"), "config.json"),
    "nested deep": (text("config.json", "[" * 100_000), "config.json"),
    "an index that leads outside": (index({"metadata": {}, "weight_map": {"lm_head.weight": "OUTSIDE"}}), "index"),
    "an index that climbs": (
        index({"metadata": {}, "weight_map": {"lm_head.weight": "../outside.safetensors"}}),
        "index",
    ),
    "an index of a number": (index(3), "index"),
    "an index of a list": (index([]), "index"),
    "an empty map": (index({"metadata": {}, "weight_map": {}}), "index"),
    "a missing shard": (
        index({"metadata": {}, "weight_map": {"lm_head.weight": "gone.safetensors"}}),
        "gone.safetensors",
    ),
    "weights cut short": (cut, ""),
    "a header that lies": (lies, ""),
    "a shape of a fraction": (header(lambda told: _first(told).update(shape=[64.5])), ""),
    "offsets in words": (header(lambda told: _first(told).update(data_offsets=["0", "8"])), ""),
    "an unknown dtype": (header(lambda told: _first(told).update(dtype="F7")), ""),
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("opens", [StandardizedTransformer, Phi.from_pretrained], ids=["transformers", "reference"])
def test_a_damaged_checkpoint_is_one_kind_of_error(folder: Path, opens: Any, how: str) -> None:
    spoil, names = DAMAGES[how]
    spoil(folder)
    with pytest.raises(LoadError) as raised:
        opens(folder)
    said = str(raised.value)
    assert names in said
    assert str(folder) in said or folder.name in said
    assert "\n" not in said


@pytest.mark.parametrize("opens", [StandardizedTransformer, Phi.from_pretrained], ids=["transformers", "reference"])
def test_the_whole_checkpoint_opens(saved: Path, opens: Any) -> None:
    opens(saved)
