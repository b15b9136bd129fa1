"""The command line as a process of its own: it starts quickly, and ends quietly when its reader leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.running import CUTAWAY, process

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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", ["--help", "show microsoft/phi-1"])
def test_standard_output_that_is_full_is_an_error(words: str) -> None:
    with open("/dev/full", "w") as full:
        done = process(*words.split(" "), stdout=full)
    assert done.returncode == 1
    assert done.stderr == b"error: standard output cannot be written: No space left on device.\n"


def closed(*words: str, stream: int) -> subprocess.CompletedProcess[bytes]:
    return process(*words, preexec_fn=lambda: os.close(stream))


def test_streams_that_are_closed() -> None:
    done = closed("read", "phi-mini", "-", "logits", stream=0)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"error: standard input is closed, and the prompt - is read from it.\n"
    done = closed("--version", stream=1)
    assert (done.returncode, done.stderr) == (1, b"error: standard output is closed.\n")
    assert closed("--version", stream=2).stdout.startswith(b"cutaway ")
    assert closed("raed", stream=2).returncode == 2


@pytest.mark.parametrize(
    ("number", "status", "told"), [(signal.SIGINT, 130, "error: interrupted.\n"), (signal.SIGTERM, 143, "")]
)
def test_a_signal_ends_it_in_a_line_and_leaves_no_file(number: int, status: int, told: str, tmp_path: Path) -> None:
    line = [*CUTAWAY, "view", "phi-mini", "-", "-o", str(tmp_path / "x.html")]
    pipe = subprocess.PIPE
    # As a background job of a shell it would ignore SIGINT.
    reset = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=reset) as running:
        time.sleep(2)  # it waits for its prompt
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err.decode()) == (status, b"", told)
    assert list(tmp_path.iterdir()) == []
