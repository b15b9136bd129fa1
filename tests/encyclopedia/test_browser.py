"""The pages in Chromium: cards by pointer and keyboard, the filter, every width, both themes, and axe.

Every test also holds that a page printed nothing and asked for nothing outside the site: see `open_page`.
"""

from __future__ import annotations

import re

import pytest

from tests.encyclopedia.conftest import PAGES

pytestmark = pytest.mark.browser


def part(page, key: str):
    return page.locator(f'a[data-part="{key}"]')


def card(page) -> str:
    """The heading of the card that shows, or nothing."""
    shown = page.locator(".card.shown h3")
    return shown.inner_text() if shown.count() else ""


def test_pointing_shows_a_card_and_leaving_takes_it_away(open_page) -> None:
    page = open_page("phi.html")
    assert card(page) == ""
    part(page, "attention_scores").hover()
    assert card(page) == "attention_scores"
    text = page.locator(".card.shown").inner_text()
    assert "Pattern [batch num_heads query key]" in text
    assert "[batch 32 query key]" in text
    assert "softmax's input" in text
    page.mouse.move(1200, 60)
    assert card(page) == ""
    assert page.locator(".idle").is_visible()


def test_a_module_tells_both_its_names(open_page) -> None:
    page = open_page("phi.html")
    part(page, "attention.o_proj").hover()
    assert card(page) == "o_proj"
    assert "self_attn.dense" in page.locator(".card.shown").inner_text()


def test_a_click_pins_and_a_second_lets_go(open_page) -> None:
    page = open_page("phi.html")
    part(page, "mlp.down_proj").click()
    part(page, "attention_keys").hover()
    assert card(page) == "down_proj"
    assert part(page, "mlp.down_proj").get_attribute("aria-current") == "true"
    part(page, "mlp.down_proj").click()
    page.mouse.move(1200, 60)
    part(page, "attention_keys").hover()
    assert card(page) == "attention_keys"


def test_escape_and_the_button_let_go(open_page) -> None:
    page = open_page("gpt2.html")
    part(page, "mlp.act_fn").click()
    page.mouse.move(1200, 60)
    assert card(page) == "act_fn"
    page.keyboard.press("Escape")
    assert card(page) == ""
    part(page, "mlp.act_fn").click()
    page.get_by_role("button", name="Let go").click()
    page.mouse.move(1200, 60)
    assert part(page, "mlp.act_fn").get_attribute("aria-current") is None
    assert not page.get_by_role("button", name="Let go").is_visible()


def test_the_keyboard_walks_through_every_part(open_page) -> None:
    page = open_page("llama.html")
    keys = page.locator("a.part").evaluate_all("links => links.map(link => link.dataset.part)")
    page.locator("a.part").first.focus()
    seen = [page.evaluate("document.activeElement.dataset.part")]
    for _ in keys[1:]:
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.dataset.part"))
        assert page.locator(".card.shown").get_attribute("id") == f"part-{seen[-1]}"
    assert seen == keys
    page.keyboard.press("Enter")
    assert part(page, keys[-1]).get_attribute("aria-current") == "true"
    page.keyboard.press("Escape")
    assert part(page, keys[-1]).get_attribute("aria-current") is None


def test_a_link_from_elsewhere_opens_a_card(open_page) -> None:
    page = open_page("phi.html#part-attention.o_proj")
    assert card(page) == "o_proj"
    assert part(page, "attention.o_proj").is_visible()


def test_a_link_to_a_part_that_the_family_lacks_opens_its_card(open_page) -> None:
    page = open_page("glossary.html")
    page.locator("#value-layer_mid").get_by_role("link", name="Phi").click()
    page.wait_for_url("**/phi.html#part-layer_mid")
    assert card(page) == "layer_mid"
    assert "parallel" in page.locator(".card.shown").inner_text()
    page.keyboard.press("Escape")
    assert card(page) == ""


def test_the_filter(open_page) -> None:
    page = open_page("index.html")

    def families() -> list[str]:
        return page.locator("li.family:visible h3").all_inner_texts()

    assert families() == ["Phi", "Llama", "GPT-2", "GPT-NeoX"]
    page.get_by_role("button", name="parallel").click()
    assert families() == ["Phi", "GPT-NeoX"]
    assert page.locator("#count").inner_text() == "2 families"
    page.get_by_role("button", name="fused").click()
    assert families() == ["GPT-NeoX"]
    page.get_by_role("button", name="gated").click()
    assert families() == []
    assert page.get_by_text("No family here is like that").is_visible()
    page.get_by_role("button", name="Show all").click()
    assert len(families()) == 4
    page.get_by_role("button", name="sequential").click()
    page.get_by_role("button", name="parallel").click()
    assert len(families()) == 4, "two values of one trait are alternatives"


def test_the_filter_of_cards_is_that_of_the_table_beside_them(open_page) -> None:
    page = open_page("index.html")
    page.get_by_role("searchbox").fill("pythia")
    assert page.locator(".side-by-side tbody tr:visible th").all_inner_texts() == ["GPT-NeoX"]
    assert page.locator("#count").inner_text() == "1 family"


def test_the_filter_of_classes(open_page) -> None:
    page = open_page("classes.html")
    page.get_by_role("searchbox").fill("deepseek experts")
    names = page.locator("tr[data-family]:visible th code").all_inner_texts()
    assert "DeepseekV3ForCausalLM" in names
    assert all("deepseek" in name.lower() for name in names)
    assert page.locator("#count").inner_text() == f"{len(names)} classes"
    page.get_by_role("button", name="not opened").click()
    assert page.get_by_text("No class here is like that").is_visible()


@pytest.mark.parametrize(
    ("words", "found"),
    [("pythia", ["GPT-NeoX"]), ("C_ATTN", ["GPT-2"]), ("rmsnorm", ["Llama"]), ("phi dense", ["Phi"]), ("xyz", [])],
)
def test_the_search(open_page, words, found) -> None:
    page = open_page("index.html")
    page.get_by_role("searchbox").fill(words)
    assert page.locator("li.family:visible h3").all_inner_texts() == found


def test_a_family_is_one_click_away(open_page) -> None:
    page = open_page("index.html")
    page.locator("li.family").first.click(position={"x": 30, "y": 200})
    assert page.title().startswith("Phi")


def test_every_internal_link_opens(open_page, site) -> None:
    page = open_page("index.html")
    waiting, seen = ["index.html"], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        page.goto(f"{site.as_uri()}/{name}")
        assert page.locator("h1").count() == 1
        links = page.locator("a[href]").evaluate_all(
            "links => links.map(link => new URL(link.getAttribute('href'), location).href.split('#')[0])"
        )
        waiting += [link.removeprefix(f"{site.as_uri()}/") for link in links]
    assert {f"{name}.html" for name in PAGES} <= seen
    assert "source/phi.html" in seen


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_is_no_wider_than_the_screen(open_page, name, width) -> None:
    page = open_page(f"{name}.html", viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_on_paper_and_has_what_a_pointer_would_show(open_page, name) -> None:
    page = open_page(f"{name}.html", viewport={"width": 720, "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") == 720
    assert not page.locator("header.top").is_visible()
    if page.locator(".identity").count():
        assert page.locator(".identity").is_visible()


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_bar_shows_every_page(open_page, width) -> None:
    page = open_page("phi.html", viewport={"width": width, "height": 800})
    bar = page.locator("header.top nav > ul")
    assert bar.evaluate("bar => bar.scrollWidth <= bar.clientWidth")
    links = page.locator("header.top nav a")
    assert links.count() == len(PAGES)
    assert links.locator("visible=true").all_inner_texts() == ["All classes", "Glossary"]
    page.locator("header.top summary").click()
    assert page.locator("header.top summary").inner_text() == "Phi"
    for link in links.all():
        box = link.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width


def test_the_menu_opens_a_family_by_the_keyboard(open_page) -> None:
    page = open_page("phi.html")
    page.locator("header.top summary").focus()
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/llama.html")


@pytest.mark.parametrize("name", ["phi", "index"])
def test_it_reads_without_scripts(open_page, name) -> None:
    page = open_page(f"{name}.html", java_script_enabled=False)
    if name == "index":
        assert page.locator("li.family:visible").count() == 4
        assert not page.locator("form.filter").is_visible()
        return
    assert page.locator(".card:visible").count() == page.locator(".card").count() > 40
    assert page.get_by_text("Reported figures were taken").first.is_visible()
    assert page.locator(".identity").is_visible()


def test_a_card_on_a_phone_covers_the_foot_and_goes_again(open_page) -> None:
    page = open_page("phi.html", viewport={"width": 390, "height": 800}, has_touch=True)
    part(page, "attention.q_proj").tap()
    box = page.locator(".panel").bounding_box()
    assert box["y"] + box["height"] == pytest.approx(800, abs=1)
    page.get_by_role("button", name="Let go").tap()
    assert card(page) == ""


def test_pictures_follow_the_theme(open_page) -> None:
    for scheme in ("light", "dark"):
        page = open_page("phi.html", color_scheme=scheme)
        page.locator("figure.picture img").first.scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('figure.picture img').naturalWidth > 0")
        chosen = page.locator("figure.picture img").first.evaluate("image => image.currentSrc")
        assert re.search(rf"-{scheme}\.png$", chosen)


@pytest.mark.parametrize("name", [*PAGES, "source/phi"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_serious(open_page, axe, name, scheme, width) -> None:
    page = open_page(f"{name}.html", color_scheme=scheme, viewport={"width": width, "height": 900})
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    told = [
        f"{violation['id']}: {node['target']} {node.get('failureSummary', '')}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"][:3]
    ]
    assert told == []
