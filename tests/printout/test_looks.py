"""How printouts look as text, in a terminal and in a notebook."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser

import pytest
from rich.console import Console
from transformers import PhiConfig

from cutaway import StandardizedTransformer
from cutaway.inspection import printout
from cutaway.vocabulary import COMMON

SHIPPED = ("microsoft/phi-1", "microsoft/phi-1_5", "microsoft/phi-2")


@pytest.fixture(scope="module")
def phi_2() -> StandardizedTransformer:
    return StandardizedTransformer("microsoft/phi-2", dispatch=False)


def rendered(thing: object, width: int, **console: object) -> str:
    page = io.StringIO()
    Console(file=page, width=width, **console).print(thing)  # type: ignore[arg-type]
    return page.getvalue()


@pytest.mark.parametrize("name", SHIPPED)
def test_text_is_ascii_within_80_columns_and_tells_what_the_config_says(name: str) -> None:
    model = StandardizedTransformer(name, dispatch=False)
    text = str(model)
    assert text.isascii()
    assert max(map(len, text.split("\n"))) <= 80
    assert not any(line.endswith(" ") for line in text.split("\n"))
    assert f"(0-{model.num_layers - 1}): {model.num_layers} x PhiDecoderLayer" in text
    assert text.startswith(f"{name}\nPhiForCausalLM, ")
    assert "no weights loaded" in text


def test_text_of_phi_2_line_by_line(phi_2: StandardizedTransformer) -> None:
    lines = str(phi_2).split("\n")
    assert lines[1] == "PhiForCausalLM, float16, sdpa attention, no weights loaded, 2.78B parameters"
    for line in (
        "num_layers     32   head_dim             80",
        "        layer_mid                  not here: Phi's block is parallel",
        "          attention_queries        [batch num_heads seq qk_head_dim]",
        "          (o_proj/dense): Linear(2560, 2560, bias=True)",
        "    (norm/final_layernorm): LayerNorm((2560,), eps=1e-05)",
        "  input_size                       scalar  read-only",
        "  (lm_head): Linear(2560, 51200, bias=True)",
    ):
        assert line in lines


def test_layouts_stand_in_one_column(phi_2: StandardizedTransformer) -> None:
    values = [line for line in str(phi_2).split("\n") if line.strip().split(" ")[0] in COMMON]
    starts = {line.index("[batch") for line in values if "[batch" in line}
    assert len(values) == len(COMMON)
    assert len(starts) == 1


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_the_same_words(phi_2: StandardizedTransformer, width: int) -> None:
    plain = rendered(phi_2, width)
    assert max(map(len, plain.split("\n"))) <= width
    words = plain.translate(str.maketrans("│├└─", "    ")).split()
    assert words == str(phi_2).split() or width != 80
    coloured = rendered(phi_2, width, force_terminal=True, color_system="standard")
    assert "\x1b[35mattention_queries\x1b[0m" in coloured


def test_a_terminal_without_lines_gets_none(phi_2: StandardizedTransformer) -> None:
    class Ascii(io.StringIO):
        encoding = "ascii"  # type: ignore[assignment]

    page = Ascii()
    Console(file=page, width=100).print(phi_2)
    assert page.getvalue().isascii()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_support_has_a_row_for_each_value_within_its_width(phi_2: StandardizedTransformer, width: int) -> None:
    text = printout.support_text(phi_2.support(), width)
    lines = text.split("\n")
    assert max(map(len, lines)) <= width
    for name in COMMON:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1
    assert "[batch num_kv_heads seq qk_head_dim]" in text
    said = " ".join(text.split())
    assert "(1) Phi's block is parallel: attention and MLP read the same normed stream" in said
    assert ") asking for it runs that layer's eager attention, in float32, beside sdpa" in said


def test_support_prints_itself(phi_2: StandardizedTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    support = phi_2.support()
    assert str(support) == printout.support_text(support, 80)
    assert rendered(support, 80).split() == str(support).split()
    assert json.loads(json.dumps(support.to_dict()))["model"] == "microsoft/phi-2"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += f"{data} "


def test_html_closes_its_tags_needs_nothing_and_says_the_same(phi_2: StandardizedTransformer) -> None:
    for page in (phi_2._repr_html_(), phi_2.support()._repr_html_()):
        tags = Tags()
        tags.feed(page)
        assert not tags.open
        assert "http" not in page
        assert "<script" not in page
        assert "prefers-color-scheme: dark" in page
        for name in COMMON:
            assert f" {name} " in tags.text
    assert "<details open><summary>" in phi_2._repr_html_()
    assert "(<strong>o_proj</strong>/dense): " in phi_2._repr_html_()


def test_html_escapes_names() -> None:
    config = PhiConfig(vocab_size=31, hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2)
    config._name_or_path = "<script>alert(1)</script>&"
    model = StandardizedTransformer(config, dispatch=False)
    for page in (model._repr_html_(), model.support()._repr_html_()):
        assert "<script" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in page


def test_a_notebook_gets_both(phi_2: StandardizedTransformer) -> None:
    bundle = phi_2._repr_mimebundle_()
    assert bundle["text/plain"] == str(phi_2)
    assert bundle["text/html"] == phi_2._repr_html_()
