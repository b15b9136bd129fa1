"""Showing a built site to this machine alone.

A page from elsewhere that is open in the same browser can have it ask this server, under a name of its own that leads
to this machine. So a request has to name the server as this machine's own users do; and it gets files of the folder,
by names that say nothing but a path in it.
"""

from __future__ import annotations

import errno
import os
import re
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote_to_bytes

from cutaway.errors import CutawayError

_LOOPBACK = "127.0.0.1"
_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")

_PATIENCE = 10
"""Seconds after which a client that says nothing more is left."""


class PortError(CutawayError, OSError):
    """The port cannot be listened on; the message says why, and what to do."""


class Server:
    """Serves a folder on loopback for as long as the block lasts.

    Args:
        folder: the site; what lies outside it is not served, wherever links in it lead.
        port: to listen on; 0 takes one that is free.

    Raises:
        PortError: another program listens there, or the system does not allow it.
    """

    def __init__(self, folder: Path, port: int) -> None:
        try:
            self._server = _Quiet((_LOOPBACK, port), partial(_Handler, folder))
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


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True  # a client that lingers shall not keep the command from ending

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client that leaves in the middle is no news."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE

    def __init__(self, folder: Path, *arguments: Any) -> None:
        self._folder = folder
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers with an error; a method that there is no answer to is one that is not allowed."""
        self.close_connection = True
        if self.request_version == "HTTP/0.9":  # as which whatever is no request counts, and which has no status
            self.request_version = "HTTP/1.0"
        known = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        text = f"{known.value} {known.phrase}\n".encode()
        self.send_response(known)
        if known is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self._send_headers("text/plain; charset=utf-8", len(text))
        if self.command != "HEAD":
            self.wfile.write(text)

    def version_string(self) -> str:
        """What the server calls itself."""
        return "cutaway"

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a page asks for its files, and that is no news."""

    def _answer(self, *, body: bool) -> None:
        try:
            self._refuse_foreign_names()
            path = self._asked_for()
            content = path.read_bytes()
        except _Refused as refused:
            self.send_error(refused.status)
            return
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self._send_headers(_type_of(path), len(content))
        if body:
            self.wfile.write(content)

    def _send_headers(self, kind: str, length: int) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()

    def _refuse_foreign_names(self) -> None:
        """Raises unless the request names this server by one of its own names, and once."""
        given = self.headers.get_all("Host") or []
        if len(given) != 1:
            raise _Refused(HTTPStatus.BAD_REQUEST)
        assert isinstance(self.server, ThreadingHTTPServer)
        port = self.server.server_port
        own = {f"{name}:{port}" for name in _OWN_NAMES} | (set(_OWN_NAMES) if port == 80 else set())
        if given[0].strip().lower() not in own:
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST)

    def _asked_for(self) -> Path:
        """The file that the request's path names in the folder."""
        if not self.path.startswith("/"):  # another server's address, or none at all
            raise _Refused(HTTPStatus.BAD_REQUEST)
        encoded = re.split(r"[?#]", self.path, maxsplit=1)[0]
        if re.search(r"%(?![0-9A-Fa-f]{2})", encoded):
            raise _Refused(HTTPStatus.BAD_REQUEST)
        try:
            path = unquote_to_bytes(encoded).decode()
        except UnicodeDecodeError:
            raise _Refused(HTTPStatus.BAD_REQUEST) from None
        if re.search(r"[\x00-\x1f\x7f\\]", path):
            raise _Refused(HTTPStatus.BAD_REQUEST)
        *folders, name = path[1:].split("/")
        parts = [*folders, name or "index.html"]
        if not all(folders) or {".", ".."} & set(parts):
            raise _Refused(HTTPStatus.NOT_FOUND)
        return self._inside(Path(*parts))

    def _inside(self, path: Path) -> Path:
        """The file of this path, links followed, unless that leads out of the folder."""
        folder = Path(os.path.realpath(self._folder))
        found = Path(os.path.realpath(folder / path))
        if not found.is_relative_to(folder) or not found.is_file():
            raise _Refused(HTTPStatus.NOT_FOUND)
        return found


def _type_of(path: Path) -> str:
    kind = guess_type(path.name)[0] or "application/octet-stream"
    is_text = kind.startswith("text/") or kind in ("application/javascript", "application/json", "image/svg+xml")
    return f"{kind}; charset=utf-8" if is_text else kind
