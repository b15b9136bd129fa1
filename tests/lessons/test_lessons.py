"""The lessons in docs/ are what their sources make now: every block is run again, and every number is compared."""

from __future__ import annotations

import inspect
import io
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from cutaway.reference import PhiMLP
from cutaway.subject.source_names import data_folder
from lessons.build import DOCS, LESSONS, built
from lessons.page import LessonError, Page, build

_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")

needs_phi_mini = pytest.mark.skipif(
    not (data_folder("phi-mini") / "model.safetensors").is_file(), reason="phi-mini is not in the tree"
)


@lru_cache(maxsize=1)
def now(name: str) -> Page:
    return built(name)


@needs_phi_mini
@pytest.mark.parametrize("name", LESSONS)
def test_the_page_is_what_its_source_makes(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    stale = "the page is stale; run `make lesson`"
    assert _NUMBER.sub("#", page) == _NUMBER.sub("#", now(name).text), stale
    for there, here in zip(_NUMBER.findall(page), _NUMBER.findall(now(name).text), strict=True):
        assert float(there) == pytest.approx(float(here), rel=0.01, abs=0.011), stale


@needs_phi_mini
@pytest.mark.parametrize("name", LESSONS)
def test_its_figures_are_there_small_and_the_same(name: str) -> None:
    figures = now(name).figures
    assert set(re.findall(r"\(figures/(\S+)\)", now(name).text)) == set(figures)
    for file, content in figures.items():
        stored = (DOCS / "figures" / file).read_bytes()
        assert len(stored) < 150_000, file
        if file.endswith(".png"):
            there, here = imread(io.BytesIO(stored)), imread(io.BytesIO(content))
            assert there.shape == here.shape, file
            assert np.abs(there - here).mean() < 0.01, file
        else:
            assert b"<script" not in stored
            assert len(stored) == pytest.approx(len(content), rel=0.05), file


def test_no_figure_lies_about_unused() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert {path.name for path in (DOCS / "figures").iterdir()} == set(re.findall(r"\(figures/(\S+)\)", pages))


@pytest.mark.parametrize("name", LESSONS)
def test_links_lead_somewhere(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", page):
        assert (DOCS / link).is_file(), link


@pytest.mark.parametrize("name", LESSONS)
def test_code_fits_a_page_without_scrolling(name: str) -> None:
    source = (Path(inspect.getfile(built)).parent / f"{name}.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python(?! hidden)[^\n]*\n(.*?)^```", source, re.MULTILINE | re.DOTALL):
        assert max(map(len, block.split("\n"))) <= 104, block


def test_a_page_shows_what_was_run_and_what_it_printed() -> None:
    source = (
        "Before {{1 + 1}}.\n\n```python\nx = 3\nprint(x * 2)  \n```\n\n```python hidden\nassert x == 3\n```\n"
        "```sh\nmake lesson\n```\nAfter {{x}}.\n"
    )
    assert build(source, "a.md").text == (
        "Before 2.\n\n```python\nx = 3\nprint(x * 2)  \n```\n\n```text\n6\n```\n\n```sh\nmake lesson\n```\nAfter 3.\n"
    )


def test_source_is_the_packages_own_without_its_docstring() -> None:
    text = build("```source\nmlp:PhiMLP.__call__\n```\n", "a.md").text
    assert text.startswith("[`reference/mlp.py`](../src/cutaway/reference/mlp.py)\n```python\ndef __call__(")
    assert '"""' not in text
    own = inspect.getsource(PhiMLP.__call__)
    shown = text.split("```python\n")[1].split("\n```")[0].split("\n")
    assert all(line.strip() in own for line in shown)
    assert len(shown) == len(own.rstrip().split("\n")) - 1


def test_a_figure_is_written_beside_the_page(tmp_path: Path) -> None:
    code = "from cutaway import pictures\npictures.rotary_heatmap(4, 4, title='Four')\n"
    page = build(f"```python figure=four.svg\n{code}```\n", "a.md")
    assert "\n![Four. cos and sin at 4 positions" in page.text
    page.write(tmp_path / "a.md")
    assert (tmp_path / "figures" / "four.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "a.md").read_text() == page.text


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("one\n\n```python hidden\nassert 1 == 2\n```\n", r"a\.md, line 3: AssertionError"),
        ("{{nothing}}\n", r"\{\{nothing\}\} fails: NameError"),
    ],
)
def test_what_fails_is_told_with_its_place(source: str, told: str) -> None:
    with pytest.raises(LessonError, match=told):
        build(source, "a.md")
