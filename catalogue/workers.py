"""Classes examined by processes of their own, so that one that takes its process down, or never ends, is a row too.

What was found is kept as it comes, a line each, with a mark of the sources that found it: a run that was broken off
goes on where it was, and one after a change begins anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from catalogue.tiny import Case

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "families.jsonl"
PATIENCE = 240
"""After so many seconds a class is given up."""

Row = dict[str, Any]


def serve() -> None:
    """What a worker does: examines the cases that its input names, and writes a row for each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is no answer
    import torch
    from transformers.utils import logging

    from catalogue import tiny
    from catalogue.examine import examine

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    for line in sys.stdin:
        answers.write(json.dumps(examine(tiny.case(line.strip()))) + "\n")
        answers.flush()


def examine_all(cases: Sequence[Case], processes: int, tell: Callable[[Row], None]) -> None:
    """Examines cases in so many processes, and tells each row as it comes."""
    waiting: queue.Queue[Case] = queue.Queue()
    for case in cases:
        waiting.put(case)
    threads = [threading.Thread(target=_work, args=(waiting, tell), daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _work(waiting: queue.Queue[Case], tell: Callable[[Row], None]) -> None:
    worker: _Worker | None = None
    while True:
        try:
            case = waiting.get_nowait()
        except queue.Empty:
            break
        worker = worker or _Worker()
        row, alive = worker.ask(case)
        tell(row)
        if not alive:
            worker.end()
            worker = None
    if worker is not None:
        worker.end()


class _Worker:
    def __init__(self) -> None:
        quiet = {
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "catalogue", "--worker"],
            cwd=ROOT,
            env={**os.environ, **quiet},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def ask(self, case: Case) -> tuple[Row, bool]:
        """The row of a case, and whether the worker is there for another."""
        late = threading.Timer(PATIENCE, self._process.kill)
        late.start()
        try:
            self._in.write(case.name + "\n")
            self._in.flush()
            line = self._out.readline()
        except OSError:
            line = ""
        finally:
            given_up = not late.is_alive()
            late.cancel()
        if line:
            return json.loads(line), True
        code = self._process.wait()
        why = f"it did not end in {PATIENCE} seconds" if given_up else f"its process ended with {code}"
        row = {"name": case.name, "class": case.architecture, "images": case.images}
        return {**row, "state": "broken off", "reason": why}, False

    def end(self) -> None:
        """Ends the process."""
        with suppress(OSError):  # it may have ended by itself
            self._in.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._out.close()


def versions() -> dict[str, str]:
    """What the findings hold for."""
    from importlib.metadata import version

    from cutaway.version import __version__

    return {
        "Cutaway": __version__,
        "transformers": version("transformers"),
        "torch": version("torch"),
        "Python": ".".join(map(str, sys.version_info[:3])),
    }


def mark() -> str:
    """A mark of everything that a finding depends on, of which the page and its command are no part."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    for folder in (ROOT / "src" / "cutaway", ROOT / "catalogue"):
        for file in sorted(folder.rglob("*.py")):
            if file.name not in ("page.py", "__main__.py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def kept(own: str) -> dict[str, Row]:
    """What was found before by the same sources, by name; what others found is thrown away."""
    if not KEPT.exists():
        return {}
    lines = [line for line in KEPT.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    rows = [row for row in map(json.loads, lines) if row["mark"] == own]
    KEPT.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {row["name"]: row for row in rows}


def keep(row: Row, own: str) -> None:
    """Keeps a row for the next run."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**row, "mark": own}) + "\n")
