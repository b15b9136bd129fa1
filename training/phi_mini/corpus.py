"""The text phi-mini is trained on: the Python standard library's own source.

The files are those of the interpreter that runs the script, so nothing is downloaded. Tests and generated
tables are left out: they repeat themselves, and a small model would spend itself on learning them by heart.
A file is held out by the hash of its path, so that the split is the same on every machine.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "__pycache__", "encodings", "pydoc_data", "distutils"}
HELD_OUT_SHARE = 0.05


@dataclass(frozen=True)
class Corpus:
    """Source texts, split by file."""

    train: list[str]
    held_out: list[str]


def read_corpus() -> Corpus:
    """Reads the standard library of the running interpreter, in the order of the files' paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    corpus = Corpus([], [])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if LEFT_OUT.intersection(relative.parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if not text.strip():
            continue
        digest = hashlib.sha256(relative.as_posix().encode()).digest()
        held_out = int.from_bytes(digest[:4], "big") / 2**32 < HELD_OUT_SHARE
        (corpus.held_out if held_out else corpus.train).append(text)
    return corpus
