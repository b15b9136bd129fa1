"""Showing a built site to this machine alone."""

from __future__ import annotations

import errno
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cutaway.errors import CutawayError

_LOOPBACK = "127.0.0.1"


class PortError(CutawayError, OSError):
    """The port cannot be listened on; the message says why, and what to do."""


class Server:
    """Serves a folder on loopback for as long as the block lasts.

    Args:
        folder: the site.
        port: to listen on; 0 takes one that is free.

    Raises:
        PortError: another program listens there, or the system does not allow it.
    """

    def __init__(self, folder: Path, port: int) -> None:
        handler = partial(_Quiet, directory=str(folder))
        try:
            self._server = ThreadingHTTPServer((_LOOPBACK, port), handler)
        except OSError as error:
            why = "is in use by another program" if error.errno == errno.EADDRINUSE else f"is not to be had: {error}"
            repair = "Give another with --port, or --port 0 for one that is free."
            raise PortError(f"port {port} {why}. {repair}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address of the site."""
        return f"http://{_LOOPBACK}:{self._server.server_port}/"

    def run(self) -> None:
        """Answers requests until it is interrupted or stopped."""
        try:
            self._server.serve_forever()
        except KeyboardInterrupt:
            return

    def stop(self) -> None:
        """Ends `run`, from another thread."""
        self._server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a page asks for its files, and that is no news."""
