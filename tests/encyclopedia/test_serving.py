"""Showing the site on loopback."""

from __future__ import annotations

import os
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


def answer(served, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """What comes back for these very bytes: the status, the headers and the body; status 0 for no answer at all."""
    with socket.create_connection(("127.0.0.1", served._server.server_port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            told = stream.read()
    head, _, body = told.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split(" ")[1]) if status else 0, headers, body


def ask(served, path: str = "/", method: str = "GET", host: str | None = "127.0.0.1:{port}", more: str = ""):
    named = "" if host is None else f"Host: {host.format(port=served._server.server_port)}\r\n"
    return answer(served, f"{method} {path} HTTP/1.1\r\n{named}{more}\r\n".encode("latin-1"))


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_it_answers_to_its_own_names(served, host) -> None:
    assert ask(served, host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "localhost:{port}.evil.example", "", None,
     "127.0.0.1:{port}@evil.example", "127.0.0.2:{port}", "localhost.:{port}", "[::]:{port}"],
)  # fmt: skip
def test_it_answers_to_no_other_name(served, host) -> None:
    status, _, body = ask(served, host=host)
    assert 400 <= status < 500
    assert b"here" not in body
    assert ask(served, host=host, more="Host: localhost\r\n")[0] == 400 or host is None


@pytest.mark.parametrize(
    "path",
    ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/%252e%252e/secret.txt", "/.%00./secret.txt",
     "/%00", "/index.html%00", "/%c0%ae%c0%ae/secret.txt", "/%ff", "/%", "/%zz", "/..\\secret.txt",
     "/%5c..%5csecret.txt",
     "/%0d%0aX-Evil:1", "//secret.txt", "//etc/passwd", "/./index.html", "/index.html/", "/out/secret.txt",
     "/out.txt", "/nowhere", "/sub", "/sub/", "/pipe", "http://127.0.0.1/", "http://evil.example/", "index.html", "*",
     "/" + "a" * 5000, "/" + "a" * 70000, "/~root", "/" + "sub/" * 500],
)  # fmt: skip
def test_it_leaves_its_folder_for_nobody(served, path, tmp_path, capfd) -> None:
    site = tmp_path / "site"
    (site / "out").symlink_to(tmp_path)
    (site / "out.txt").symlink_to(tmp_path / "secret.txt")
    (site / "sub").mkdir()
    (site / "sub" / "page.html").write_text("below")
    os.mkfifo(site / "pipe")
    status, headers, body = ask(served, path)
    assert 400 <= status < 500
    assert b"not for you" not in body
    assert "x-evil" not in headers
    assert ask(served, "/sub/page.html?a=b")[2] == b"below"
    assert capfd.readouterr() == ("", "")


def test_a_link_inside_is_followed(served, tmp_path) -> None:
    (tmp_path / "site" / "first.html").symlink_to(tmp_path / "site" / "index.html")
    assert ask(served, "/first.html")[2] == b"<p>here"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"])
def test_it_only_shows(served, method) -> None:
    status, headers, _ = ask(served, method=method)
    assert status == 405
    assert headers["allow"] == "GET, HEAD"


def test_headers(served) -> None:
    status, headers, body = ask(served)
    assert (status, body) == (200, b"<p>here")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-length"] == "7"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["server"] == "cutaway"
    same = {name: value for name, value in headers.items() if name != "date"}
    status, headers, body = ask(served, method="HEAD")
    assert (status, body) == (200, b"")
    assert {name: value for name, value in headers.items() if name != "date"} == same
    assert ask(served, "/nowhere")[1]["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("request_", [b"", b"GET /\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET"])
def test_bytes_that_are_no_request(served, request_, capfd) -> None:
    status, _, body = answer(served, request_)
    assert status == 0 or 400 <= status < 600
    assert b"here" not in body
    assert ask(served)[0] == 200
    assert capfd.readouterr() == ("", "")
