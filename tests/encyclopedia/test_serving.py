"""Showing the site on loopback."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request

import pytest

from cutaway.encyclopedia.serving import PortError, Server


@pytest.fixture
def served(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<p>here")
    (tmp_path / "secret.txt").write_text("not for you")
    with Server(tmp_path / "site", 0) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        yield server
        server.stop()
        thread.join()


def fetch(url: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_it_serves_the_site_and_nothing_beside_it(served) -> None:
    assert served.url.startswith("http://127.0.0.1:")
    assert fetch(served.url) == (200, "<p>here")
    assert fetch(f"{served.url}%2e%2e/secret.txt")[0] == 404


def test_a_busy_port_is_told_with_what_to_do(tmp_path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(PortError, match=rf"port {port} is in use.*--port 0"):
            Server(tmp_path, port)
