"""The attention viewer in Chromium: pointing, pinning, the keyboard, both themes, any width.

Every test also holds that the page printed nothing and asked for nothing: see `open_page`.
"""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from cutaway import pictures

pytestmark = pytest.mark.browser


@pytest.fixture
def weights(causal):
    return causal(2, 3, 11, 11)


@pytest.fixture
def viewer(open_page, weights, prompt):
    return open_page(pictures.attention_viewer(weights, prompt, title="phi-mini"))


def token(watched, i):
    return watched.page.locator(f"#token-{i}")


def heading(watched):
    return watched.page.locator("#weights-heading").inner_text()


def table(watched):
    """The rows of the table: position, token, weight."""
    return [
        tuple(cells)
        for cells in watched.page.locator("#weights tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
        )
    ]


def heaviest(row, offset=0):
    return [str(offset + i) for i in np.argsort(-row, kind="stable")[:3]]


def test_it_opens_on_the_last_token(viewer, weights):
    assert heading(viewer) == "10 ·x looks at"
    assert [row[0] for row in table(viewer)[:3]] == heaviest(weights[0, 0, 10])


def test_pointing_at_a_token_shows_where_it_looks(viewer, weights, prompt):
    token(viewer, 6).hover()
    viewer.settled()
    assert heading(viewer) == "6 ): looks at"
    rows = table(viewer)
    expected = heaviest(weights[0, 0, 6])
    assert [row[0] for row in rows[:3]] == expected
    for position, label, weight in rows[:3]:
        assert label == pictures.token_label(prompt[int(position)])
        assert float(weight) == pytest.approx(weights[0, 0, 6, int(position)], abs=0.01)
    tints = viewer.page.locator("#tokens span").evaluate_all("spans => spans.map(s => s.style.backgroundColor)")
    assert tints[7:] == [""] * 4, "tokens that come later carry no weight"
    darkest = min(range(7), key=lambda i: sum(map(int, re.findall(r"\d+", tints[i]))))
    assert str(darkest) == expected[0]


def test_a_click_pins_and_a_second_lets_go(viewer):
    token(viewer, 4).click()
    token(viewer, 8).hover()
    viewer.settled()
    assert heading(viewer) == "4 , looks at (pinned)"
    assert token(viewer, 4).get_attribute("aria-selected") == "true"
    token(viewer, 4).click()
    token(viewer, 8).hover()
    viewer.settled()
    assert heading(viewer) == "8 ···· looks at"
    assert token(viewer, 4).get_attribute("aria-selected") == "false"


def test_everything_by_keyboard(viewer):
    page = viewer.page
    page.locator("input[name=layer]:checked").focus()
    page.keyboard.press("ArrowRight")
    viewer.shown("1.0")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    viewer.shown("1.1")
    for _ in range(4):  # direction, two boxes, and into the tokens
        page.keyboard.press("Tab")
    focused = "() => document.activeElement.id"
    assert page.evaluate(focused) == "token-10"
    keys = ("Home", "ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft", "End")
    for key, expected in zip(keys, (0, 1, 9, 1, 0, 10), strict=True):
        page.keyboard.press(key)
        assert page.evaluate(focused) == f"token-{expected}", key
    page.keyboard.press("Enter")
    page.keyboard.press("Home")
    viewer.settled()
    assert heading(viewer) == "10 ·x looks at (pinned)"
    page.keyboard.press("Escape")
    viewer.settled()
    assert heading(viewer) == "0 def looks at"


def test_a_screen_reader_is_told(viewer):
    tokens = viewer.page.get_by_role("listbox", name="Tokens")
    assert tokens.get_by_role("option").count() == 11
    assert viewer.page.get_by_role("option", name="1: space add", exact=True).count() == 1
    assert viewer.page.get_by_role("radio", name="2", exact=True).count() == 1
    assert viewer.page.get_by_role("img", name="Pattern of layer 0, head 0").count() == 1
    token(viewer, 1).focus()
    said = viewer.page.locator("#announcement")
    said.get_by_text("1: space add looks at").wait_for(state="attached")
    assert "layer 0, head 0" in said.inner_text()
    assert viewer.page.locator("#tokens [tabindex='0']").count() == 1


def test_another_layer_and_head_are_shown(viewer, weights):
    viewer.page.locator(".layers .chip").nth(1).click()
    viewer.shown("1.0")
    viewer.page.locator(".heads .head").nth(2).click()
    viewer.shown("1.2")
    assert [row[0] for row in table(viewer)[:3]] == heaviest(weights[1, 2, 10])
    assert viewer.page.locator("#pattern-heading").inner_text() == "Pattern of layer 1, head 2"


def test_what_looks_at_a_token(viewer, weights):
    viewer.page.get_by_text("what looks at it").click()
    token(viewer, 2).hover()
    viewer.settled()
    assert heading(viewer) == "2 ( is looked at by"
    assert [row[0] for row in table(viewer)[:3]] == heaviest(weights[0, 0, :, 2])


def test_pointing_at_the_matrix(viewer, weights):
    canvas = viewer.page.locator("#pattern")
    box = canvas.bounding_box()
    gutter = box["height"] - box["width"]
    assert gutter == pytest.approx(0, abs=1), "the same room for labels on both sides"
    cell = box["width"] / 11
    # The gutter's width depends on the face at hand: from the right and the top it does not matter.
    canvas.hover(position={"x": box["width"] - cell * 0.3, "y": 3})
    viewer.settled()
    assert viewer.page.locator("#cell").inner_text() == "0 def → 10 ·x: may not look there"
    canvas.click(position={"x": box["width"] - cell * 0.3, "y": 3})
    viewer.settled()
    assert heading(viewer) == "0 def looks at (pinned)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_system_and_can_be_told(open_page, weights, prompt, scheme):
    watched = open_page(pictures.attention_viewer(weights, prompt), color_scheme=scheme)
    ground = "() => getComputedStyle(document.documentElement).backgroundColor"
    grounds = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}
    assert watched.page.evaluate(ground) == grounds[scheme]
    watched.page.get_by_label("dark page").click()
    watched.settled()
    other = "dark" if scheme == "light" else "light"
    assert watched.page.evaluate(ground) == grounds[other]


def test_a_theme_that_is_fixed(open_page, weights, prompt):
    watched = open_page(pictures.attention_viewer(weights, prompt, theme="dark"), color_scheme="light")
    assert watched.page.get_by_label("dark page").is_checked()


@pytest.mark.parametrize("width", [320, 390, 768, 1600])
def test_nothing_runs_off_the_side(open_page, causal, nasty, width):
    n = len(nasty)
    picture = pictures.attention_viewer(causal(24, 32, n, n), nasty, title="a long title " * 12)
    watched = open_page(picture, viewport={"width": width, "height": 800})
    assert watched.page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_nasty_tokens_are_text(open_page, causal, nasty):
    n = len(nasty)
    watched = open_page(pictures.attention_viewer(causal(1, 1, n, n), nasty))
    for i, label in enumerate(pictures.token_labels(nasty)):
        assert token(watched, i).evaluate("span => span.textContent") == label
        token(watched, i).hover()
    watched.settled()
    assert watched.page.locator("#tokens *:not([role=option], br)").count() == 0


def test_small_weights_can_be_brought_out(open_page):
    even = np.full((1, 1, 40, 40), 1 / 40)
    watched = open_page(pictures.attention_viewer(even, ["x"] * 40))
    tint = "span => span.style.backgroundColor"
    before = token(watched, 3).evaluate(tint)
    watched.page.get_by_label("bring out small weights").click()
    watched.settled()
    assert sum(map(int, re.findall(r"\d+", token(watched, 3).evaluate(tint)))) < sum(
        map(int, re.findall(r"\d+", before))
    )


def test_512_tokens_stay_quick(open_page, causal):
    picture = pictures.attention_viewer(causal(2, 4, 512, 512), [f" t{i}" for i in range(512)])
    started = time.perf_counter()
    watched = open_page(picture)
    assert time.perf_counter() - started < 8
    assert token(watched, 511).is_visible()
    token(watched, 100).hover()
    watched.settled()
    assert heading(watched) == "100 ·t100 looks at"
    frames = watched.page.evaluate(
        """async () => {
            const tokens = [...document.querySelectorAll("[role=option]")].slice(0, 20);
            const started = performance.now();
            for (const token of tokens) {
                token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
                await new Promise(requestAnimationFrame);
            }
            return (performance.now() - started) / tokens.length;
        }"""
    )
    assert frames < 250, "milliseconds from a hover to its picture"


def test_in_a_notebook(browser, weights, prompt):
    page = browser.new_page()
    page.set_content(f"<!doctype html>{pictures.attention_viewer(weights, prompt)._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator("html[data-shown]").wait_for(state="attached")
    frame.locator("#token-4").hover()
    frame.get_by_text("4 , looks at").wait_for()
    page.close()
