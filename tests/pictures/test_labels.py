"""Labels show everything and can be read back."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.pictures import text_of, token_label, token_labels
from cutaway.pictures.labels import spoken

characters = st.characters(codec="utf-8") | st.sampled_from("·↵⇥⇤∅\\ux{} \n\t\r\u202e\u200b\u0301\ud800")
tokens = st.lists(st.text(characters, max_size=8), max_size=6)


@given(tokens)
def test_labels_join_to_the_text(given_tokens):
    assert text_of(token_labels(given_tokens)) == "".join(given_tokens)


@given(tokens)
def test_a_label_maps_back_to_its_token_alone(given_tokens):
    assert [text_of([label]) for label in token_labels(given_tokens)] == given_tokens


@given(st.text(max_size=12), st.lists(st.integers(0, 40), max_size=4))
def test_bytes_cut_anywhere_join_to_the_text(text, cuts):
    raw = text.encode("utf-8")
    edges = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    pieces = [raw[a:b] for a, b in itertools.pairwise(edges)]
    assert text_of(token_labels(pieces)) == text


@given(st.text(characters, max_size=8))
def test_nothing_in_a_label_is_invisible(text):
    label = token_label(text)
    assert label
    assert not any(c.isspace() or unicodedata.category(c)[0] in "CZ" for c in label)


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (" the", "·the"),
        ("\n\n", "↵↵"),
        ("\t", "⇥"),
        ("\r\n", "⇤↵"),
        ("", "∅"),
        ("∅", "\\u{2205}"),
        ("·", "\\u{b7}"),
        ("\\n", "\\n"),
        ("\\u{b7}", "\\u{5c}u{b7}"),
        ("\u202e", "\\u{202e}"),
        (b"\xe4\xbd", "\\x{e4}\\x{bd}"),
        ("你好", "你好"),
        ("<b>$x$", "<b>$x$"),
    ],
)
def test_how_tokens_are_labelled(token, label):
    assert token_label(token) == label


def test_nasty_tokens_have_labels_of_their_own(nasty):
    assert len(set(token_labels(nasty))) == len(nasty)


def test_what_a_screen_reader_says():
    assert spoken(" def") == "space def"
    assert spoken("    ") == "4 spaces"
    assert spoken("\n\n\tx") == "2 line feeds tab x"
    assert spoken("") == "empty token"
