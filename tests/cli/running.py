"""Running a command line in this process, and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from typer.testing import CliRunner

from cutaway.cli import app

CUTAWAY = [sys.executable, "-W", "error", "-c", "from cutaway.cli import main; main()"]


def run(*words: str, status: int = 0, stdin: str | bytes | None = None, **env: str) -> tuple[str, str]:
    """What a command prints on stdout and stderr, once its status is as expected."""
    given = {"TQDM_DISABLE": "1", **env}  # as where stderr is no terminal, see `prepared`
    result = CliRunner().invoke(app, list(words), input=stdin, env=given)
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


def wrong(*words: str, status: int = 2, stdin: str | bytes | None = None) -> str:
    """The message of a command that ends in an error: one line, on stderr alone, in the one style."""
    out, err = run(*words, status=status, stdin=stdin)
    assert out == ""
    lines = [line for line in err.split("\n") if not line.startswith("\rLoading weights")]
    assert len(lines) == 2, err
    assert lines[0].startswith("error: "), err
    assert lines[1] == ""
    return lines[0].removeprefix("error: ")


def process(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """A command as a process of its own; without pipes given, both outputs are captured."""
    pipes = {name: subprocess.PIPE for name in ("stdout", "stderr") if name not in options}
    env = {**os.environ, "HF_HUB_OFFLINE": "1", **options.pop("env", {})}
    return subprocess.run([*CUTAWAY, *words], env=env, timeout=120, check=False, **{**pipes, **options})
