"""The viewer's page as a file: small, safe, the same every time, and honest about what it leaves out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from cutaway import pictures


class Elements(HTMLParser):
    """The elements of a page, and the text of each script and option."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.inside = False
        self.text: dict[int, str] = {}
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.text[len(self.tags) - 1] = self.text.get(len(self.tags) - 1, "") + data

    def of(self, tag):
        return [(attrs, self.text.get(i, "")) for i, (name, attrs) in enumerate(self.tags) if name == tag]


def data_of(page):
    return json.loads(next(text for attrs, text in Elements(page.html).of("script") if attrs.get("id") == "data"))


def unpacked(packed, count):
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)
    return (raw.reshape(count, count) / 255.0) ** 2


def test_weights_in_the_page_are_those_given(causal, prompt):
    weights = causal(2, 3, 11, 11)
    data = data_of(pictures.attention_viewer(weights, prompt))
    for i, layer in enumerate(data["layers"]):
        for j, packed in enumerate(layer):
            np.testing.assert_allclose(unpacked(packed, 11), weights[i, j], atol=0.004)


def test_small_weights_are_told_from_none():
    weights = np.full((1, 1, 512, 512), 1 / 512)
    data = data_of(pictures.attention_viewer(weights, ["x"] * 512))
    np.testing.assert_allclose(unpacked(data["layers"][0][0], 512), 1 / 512, rtol=0.1)


def test_no_token_becomes_markup(causal, nasty):
    page = pictures.attention_viewer(causal(1, 1, len(nasty), len(nasty)), nasty, title="<img src=x onerror=alert(1)>")
    elements = Elements(page.html)
    assert len(elements.of("script")) == 2
    assert elements.of("img") == []
    options = [(attrs, text) for attrs, text in elements.of("span") if attrs.get("role") == "option"]
    assert [text for _, text in options] == pictures.token_labels(nasty)
    assert {tuple(attrs) for attrs, _ in options} == {("role", "id", "tabindex", "aria-selected", "aria-label")}
    assert data_of(page)["labels"] == pictures.token_labels(nasty)
    page.html.encode("utf-8")


def test_the_page_names_nothing_outside_itself(causal, prompt):
    html = pictures.attention_viewer(causal(1, 1, 11, 11), prompt).html
    assert not re.search(
        r"""(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}|@import|url\(|<link(?! rel="icon" href="data:,")""", html
    )
    for attrs, _ in Elements(html).of("script"):
        assert "src" not in attrs


def test_the_policy_allows_this_script_and_style_alone(causal, prompt):
    elements = Elements(pictures.attention_viewer(causal(1, 1, 11, 11), prompt).html)
    policy = next(a["content"] for a, _ in elements.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    script = next(text for attrs, text in elements.of("script") if "id" not in attrs)
    for text in (script, elements.of("style")[0][1]):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy


def test_the_page_is_the_same_every_time(causal, prompt, tmp_path):
    weights = causal(2, 2, 11, 11)
    first, second = (pictures.attention_viewer(weights, prompt) for _ in range(2))
    assert first.save(tmp_path / "a.html").read_bytes() == second.save(tmp_path / "b.html").read_bytes()


def test_512_tokens_are_a_page_of_bounded_size_made_in_bounded_time(causal):
    weights = causal(2, 8, 512, 512, sharpness=0.5)
    started = time.perf_counter()
    page = pictures.attention_viewer(weights, ["x"] * 512)
    assert time.perf_counter() - started < 10
    assert len(page.html) < 5_000_000
    assert page.notice == ""


def test_what_does_not_fit_is_left_out_and_said(causal):
    weights = causal(1, 2, 128, 128, sharpness=1.5)
    page = pictures.attention_viewer(weights, ["x"] * 128, most_bytes=9_000)
    floor = float(re.search(r"weights below ([\d.]+) are shown as 0", page.notice)[1])
    assert page.notice in page.html
    data = data_of(page)
    assert sum(len(head) for head in data["layers"][0]) <= 9_000
    kept = unpacked(data["layers"][0][1], 128)
    np.testing.assert_allclose(kept, np.where(weights[0, 1] < floor, 0, weights[0, 1]), atol=0.004)


def test_more_tokens_than_it_shows_are_cut_and_said():
    weights = np.eye(1030, dtype=np.float32)[None, None]
    page = pictures.attention_viewer(weights, [f"{i} " for i in range(1030)])
    assert "the last 1024 of 1030 tokens" in page.notice
    data = data_of(page)
    assert (data["offset"], data["labels"][0]) == (6, "6·")


@pytest.mark.parametrize("last", [-1, 1])
def test_the_head_shown_at_first(causal, prompt, last):
    data = data_of(pictures.attention_viewer(causal(2, 2, 11, 11), prompt, layer=last, head=last))
    assert (data["layer"], data["head"]) == (1, 1)
