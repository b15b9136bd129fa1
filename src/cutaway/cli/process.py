"""The process that the command line is: its streams, its signals, its warnings."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from cutaway.cli.terminal import let_go, told


@contextmanager
def prepared() -> Generator[None]:
    """Sees to it that a process ends as its commands mean it to.

    Characters that the terminal's encoding lacks are replaced, so that printing cannot fail; transformers' progress
    bars are left out where nobody watches them; a warning is a line. Who ends the process by a signal finds nothing
    half written.
    """
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  # None where the descriptor is closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process lasts
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        told("error", "standard output is closed.")
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    warnings.showwarning = _in_a_line
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_DFL:
            signal.signal(getattr(signal, name), _leave)
    try:
        yield
    except KeyboardInterrupt:  # while the command line was read, or an error told
        let_go()
        told("error", "interrupted.")
        sys.exit(130)


def _leave(number: int, frame: Any) -> None:
    """Unwinds, so that what is half written is taken away."""
    let_go()
    raise SystemExit(128 + number)


def _in_a_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    told("warning", str(message))
