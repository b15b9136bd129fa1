"""Patterns and prompts to draw, and pages in the browser to open pictures in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

PROMPT = ["def", " add", "(", "x", ",", " y", "):", "\n", "    ", "return", " x"]

# Everything that a token may hold and a picture may trip over.
NASTY = [
    "<script>alert(1)</script>",
    "$x$",
    "$\\frac{",
    "a\nb",
    "\u202eevil",
    "",
    "\x00",
    "·",
    "\\u{202e}",
    "你好",
    "\U0001f9ea",
    "\u0301",
    "</style>-->",
    "\ud800",
    "&amp;",
    '" onload="x',
    b"\xe4\xbd",
    b"\xa0",
]


def causal_patterns(*shape: int, seed: int = 0, sharpness: float = 3.0) -> np.ndarray:
    """Random causal attention: softmax rows of shape [..., query, key]."""
    scores = np.random.default_rng(seed).normal(size=shape) * sharpness
    num_queries, num_keys = shape[-2:]
    scores[..., ~np.tril(np.ones((num_queries, num_keys), bool), num_keys - num_queries)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def prompt() -> list[str]:
    return list(PROMPT)


@pytest.fixture
def nasty() -> list[str | bytes]:
    return list(NASTY)


@pytest.fixture
def causal():
    """The function that makes random causal attention."""
    return causal_patterns


class Watched:
    """A page in the browser, what it printed and failed with, and every request it made."""

    def __init__(self, page):
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path) -> None:
        self.page.goto(path.as_uri())
        self.shown()

    def shown(self, head: str | None = None) -> None:
        """Wait until a head is drawn."""
        wanted = f'[data-shown="{head}"]' if head else "[data-shown]"
        self.page.wait_for_selector(f"html{wanted}", state="attached")
        self.settled()

    def settled(self) -> None:
        """Wait for the next frame to be drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture
def open_page(browser, tmp_path):
    """A function that opens a picture in a fresh page; at the end nothing may have been printed or asked for."""
    watched: list[tuple[Watched, str]] = []

    def open_(picture, **options) -> Watched:
        path = picture.save(tmp_path / f"{len(watched)}.html")
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = Watched(context.new_page())
        page.open(path)
        watched.append((page, path.as_uri()))
        return page

    yield open_
    for page, address in watched:
        page.page.context.close()
        assert page.complaints == []
        assert [url for url in page.requests if url not in (address, "data:,")] == []
