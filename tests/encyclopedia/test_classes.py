"""The page of all classes, against the file that the catalogue wrote and transformers' own mapping."""

from __future__ import annotations

import html
import json
import re

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from cutaway.encyclopedia import classes
from cutaway.encyclopedia import site as site_module
from cutaway.encyclopedia.classes import DATA, all_classes


@pytest.fixture(scope="module")
def found() -> dict:
    return json.loads(DATA.read_text(encoding="utf-8"))


def test_every_class_of_the_mapping_is_there(found) -> None:
    there = {row["class"] for row in found["classes"] if not row["images"]}
    assert there == set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())


def test_the_page_has_a_row_a_class_and_says_what_is_not_claimed(site, found) -> None:
    text = (site / "classes.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr data-family=.*?</tr>", text, re.DOTALL)
    assert len(rows) == len(found["classes"])
    for row, one in zip(rows, found["classes"], strict=True):
        assert f"<code>{one['class']}</code>" in row
        assert (">derived<" in row) == (one["state"] == "opened" and one["derived"])
        assert ("<b>exact</b>" in row) == one.get("sum_exact", False)
        words = html.unescape(re.sub("<[^>]+>", "", row))
        for off in one.get("taken_off", ()):
            assert off["claim"].replace("`", "") in words
            assert " ".join(off["why"].split()).replace("`", "") in words
        assert ("not opened" in row) == (one["state"] != "opened")
    opened = [one for one in found["classes"] if one["state"] == "opened"]
    assert f"<span>open</span> <b>{len(opened)}</b>" in text
    assert 'href="llama.html">Llama</a>' in text


def test_layers_and_reasons_are_told_by_kind(tmp_path) -> None:
    row = {
        "name": "two", "class": "Two", "images": False, "state": "opened", "family": "two", "derived": True,
        "sum_exact": False, "values": 9, "taken_off": [{"claim": "the lens", "layers": [], "why": "by\n 5"}],
        "layers": [
            {"what": "attention and MLP", "layers": [0, 2], "sum": "a + b", "no_sum": ""},
            {"what": "mixer", "layers": [1], "sum": "", "no_sum": "It is none."},
        ],
    }  # fmt: skip
    refused = {"name": "no", "class": "No", "images": True, "state": "refused", "reason": "looped"}
    (tmp_path / "families.json").write_text(json.dumps({"versions": {}, "classes": [row, refused]}))
    two, no = all_classes(tmp_path / "families.json").rows
    assert two.layers == ("0, 2: attention and MLP", "1: mixer")
    assert two.sum == "on some layers"
    assert [(one.claim, one.why) for one in two.reasons] == [
        ("the sum on layer 1", "It is none."),
        ("the lens", "by 5"),
    ]
    assert (no.found, no.images, no.reasons[0].why) == ("not opened", True, "looped")


def test_without_the_file_there_is_no_page_and_no_link(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(site_module, "all_classes", lambda: classes.all_classes(tmp_path / "none.json"))
    site_module.build(tmp_path / "site", families=["gpt2"])
    assert not (tmp_path / "site" / "classes.html").exists()
    assert "classes.html" not in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
