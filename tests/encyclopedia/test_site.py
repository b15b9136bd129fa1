"""The built site: its links, its texts, its size, and where it may be written."""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cutaway.encyclopedia import NoteError, build, notes, notes_of
from cutaway.encyclopedia import site as site_module
from cutaway.encyclopedia.folder import OutputError
from cutaway.encyclopedia.site import UnknownFamilyError, steps_of
from cutaway.encyclopedia.specimens import specimen_of
from cutaway.families import FAMILIES
from cutaway.vocabulary import COMMON, LAYOUTS, MODULES
from tests.encyclopedia.conftest import PAGES, SHOWN


class Links(HTMLParser):
    """The ids and the addresses in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name in ("href", "src", "srcset"):
                self.addresses.append(value)

    def handle_data(self, data) -> None:
        self.text.append(data)


def read(path: Path) -> Links:
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def everything(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_every_page_is_there_and_small(site) -> None:
    assert {f"{name}.html" for name in PAGES} <= {path.name for path in everything(site)}
    for path in everything(site):
        whole = read(path)
        parts = [path.parent / address for address in whole.addresses if ".png" in address or "assets" in address]
        assert path.stat().st_size + sum(part.stat().st_size for part in parts) < 1_000_000


def test_every_internal_link_leads_somewhere(site) -> None:
    pages = {path: read(path) for path in everything(site)}
    for path, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), path
        for address in page.addresses:
            if address.startswith("data:"):
                continue
            assert "://" not in address, f"{path} leaves the site: {address}"
            assert not address.startswith("/"), f"{path} has a link from the root: {address}"
            file, _, part = address.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.is_file(), f"{path}: {address}"
            if part:
                assert part in pages[target].ids, f"{path}: {address}"


def test_nothing_is_loaded_from_elsewhere(site) -> None:
    for path in [*everything(site), *site.rglob("*.css"), *site.rglob("*.js")]:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "url(http" not in text
        assert "@import" not in text


@pytest.mark.parametrize("family", SHOWN)
def test_the_code_on_a_page_is_the_code_that_ran(site, family) -> None:
    text = re.sub(r"</?span[^>]*>", "", (site / f"{family}.html").read_text(encoding="utf-8"))
    shown = [html.unescape(code) for code in re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", text, re.DOTALL)]
    for note in notes_of(family):
        assert note.source in shown
        assert note.source.split("\n", 1)[1] in inspect.getsource(note.check)


@pytest.mark.parametrize("family", SHOWN)
def test_a_page_shows_each_value_and_each_part_of_its_drawing_has_a_card(site, family) -> None:
    text = (site / f"{family}.html").read_text(encoding="utf-8")
    drawn = set(re.findall(r'data-part="([^"]+)"', text))
    cards = set(re.findall(r'id="part-([^"]+)"', text))
    assert drawn <= cards
    lacking = set(re.findall(r'<tr class="missing"><th scope="row"><code>([^<]+)', text))
    assert set(COMMON) - drawn - lacking == {"attention_mask", "input_size"}
    for module in MODULES.values():
        named = module.name in FAMILIES[family].modules.get(module.host, {})
        assert (f"{module.host}.{module.name}" in drawn) == named, module.name


@pytest.mark.parametrize(
    ("family", "sums"),
    [
        ("phi", ["Attn(N(x)) + MLP(N(x)) + x"]),
        ("llama", ["x + Attn(N1(x))", "m + MLP(N2(m))"]),
        ("gpt2", ["Attn(N1(x)) + x", "m + MLP(N2(m))"]),
        ("gpt_neox", ["MLP(N2(x)) + Attn(N1(x)) + x"]),
    ],
)
def test_the_identity_is_told_in_its_true_order(site, family, sums) -> None:
    text = re.sub(r"<[^>]+>", "", (site / f"{family}.html").read_text(encoding="utf-8"))
    for expected in sums:
        assert f"= {expected}" in text


@pytest.mark.parametrize("family", SHOWN)
def test_a_page_says_whether_its_figures_are_of_random_weights(site, family) -> None:
    text = re.sub(r"<[^>]+>", "", (site / f"{family}.html").read_text(encoding="utf-8"))
    trained = specimen_of(family)[0].tokenizer is not None
    assert trained == (family == "phi")
    assert ("that ships with Cutaway, when this page was made" in text) == trained
    assert ("its weights are random, so figures tell of the wiring alone" in text) == (not trained)


def test_the_glossary_has_the_whole_vocabulary(site) -> None:
    ids = read(site / "glossary.html").ids
    assert {f"value-{name}" for name in COMMON} <= set(ids)
    assert {f"layout-{name}" for name in LAYOUTS} <= set(ids)
    text = "".join(read(site / "glossary.html").text)
    assert all(name in text for name in MODULES)
    assert "transformer.ln_f" in text
    modules, _, weights = text.partition("W_E")
    assert "query_key_value" not in modules, "it has no standard name"
    assert "query_key_value.weight, 2 of 3 side by side in each head" in weights


def test_the_phi_page_compares_three_checkpoints(site) -> None:
    text = "".join(read(site / "phi.html").text)
    assert text.count("1,418,270,720") >= 4
    assert "2,779,683,840" in text
    assert "a parallel block" in text
    for reported in ("1.1×10⁶ at block 29", "about −790", "0.33", "50284, 7783, 2124"):
        assert reported in text


def test_the_source_page_is_the_family_file(site) -> None:
    text = "".join(read(site / "source" / "phi.html").text)
    assert Path(inspect.getsourcefile(__import__("cutaway.families.phi", fromlist=["PHI"]))).read_text() in text


def test_a_second_build_takes_the_place_of_the_first(tmp_path) -> None:
    build(tmp_path, families=["gpt2", "llama"])
    assert (tmp_path / "gpt2.html").is_file()
    told = []
    build(tmp_path, families=["llama"], progress=told.append)
    assert len(told) == steps_of(["llama"])
    assert (tmp_path / "llama.html").is_file()
    assert not (tmp_path / "gpt2.html").exists()


def test_a_folder_with_other_files_is_refused(tmp_path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match=r"thesis\.tex.*--force"):
        build(tmp_path, families=["gpt2"])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    build(tmp_path, families=["gpt2"], force=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(OutputError, match=r"thesis\.tex"):
        build(tmp_path, families=["gpt2"])


def test_a_listing_cannot_make_a_build_delete_elsewhere(tmp_path) -> None:
    outside = tmp_path / "keep.txt"
    outside.write_text("keep")
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "site.json").write_text('{"made by": "cutaway encyclopedia build", "files": ["../keep.txt"]}')
    build(folder, families=["gpt2"])
    assert outside.read_text() == "keep"


def test_a_file_is_no_folder(tmp_path) -> None:
    (tmp_path / "site").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        build(tmp_path / "site", families=["gpt2"])


def test_an_unknown_family_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownFamilyError, match="'fi'; there are phi, llama"):
        build("nowhere", families=["fi"])
    with pytest.raises(UnknownFamilyError, match="Did you mean 'gpt2'"):
        build("nowhere", families=["gpt-2"])


def test_a_failing_note_stops_the_build_and_nothing_is_written(tmp_path, monkeypatch) -> None:
    def wrong(model):
        """Wrong."""
        raise AssertionError("seven is not eight")

    first, *others = notes_of("gpt2")
    monkeypatch.setitem(notes._NOTES, "gpt2", (dataclasses.replace(first, check=wrong), *others))
    with pytest.raises(NoteError, match=r"(?s)positions_added_once.*a tiny random GPT-2.*seven is not eight"):
        build(tmp_path / "site", families=["gpt2"])
    assert not (tmp_path / "site").exists()
    assert site_module.notes_of is notes.notes_of
