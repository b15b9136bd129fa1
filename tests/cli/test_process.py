"""The command line as a process of its own: it starts quickly, and ends quietly when its reader leaves."""

from __future__ import annotations

import os
import subprocess
import sys

CUTAWAY = [sys.executable, "-W", "error", "-c", "from cutaway.cli import main; main()"]
HEAVY = {"torch", "transformers", "matplotlib", "numpy", "rich.console"}


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from cutaway.cli import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage:" in done.stdout
    assert not HEAVY & set(done.stdout.split("\n")[-2].split())


def test_a_reader_that_leaves_early_is_no_error() -> None:
    with subprocess.Popen(
        [*CUTAWAY, "show", "microsoft/phi-1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""


def test_a_terminal_that_lacks_characters_still_gets_the_rest() -> None:
    done = subprocess.run(
        [*CUTAWAY, "support", "microsoft/phi-2"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"},
    )
    assert b"attention_queries" in done.stdout
    assert done.stderr == b""
