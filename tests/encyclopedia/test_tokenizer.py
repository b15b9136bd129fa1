"""CodeGen's tokenizer, which Phi uses, built from GPT-2's vocabulary: the ids that the Phi page reports."""

from __future__ import annotations

import json

import pytest
from transformers import CodeGenTokenizer

from cutaway.encyclopedia.notes import phi_tokens


@pytest.fixture(scope="module")
def tokenizer(gpt2_vocabulary, tmp_path_factory):
    """GPT-2's 50,257 tokens, then runs of 31 down to 2 spaces, then of 9 down to 2 tabs."""
    vocabulary = json.loads((gpt2_vocabulary / "encoder.json").read_text(encoding="utf-8"))
    merges = (gpt2_vocabulary / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    pairs = [tuple(line.split()) for line in merges if line.strip()]
    assert len(vocabulary) == 50257
    built = CodeGenTokenizer(vocab=vocabulary, merges=pairs)
    built.add_tokens([" " * n for n in range(31, 1, -1)])
    built.add_tokens(["\t" * n for n in range(9, 1, -1)])
    return built


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer(text)["input_ids"]


def test_it_has_the_tokens_of_phi(tokenizer) -> None:
    assert len(tokenizer) == 50295
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") == 50256


@pytest.mark.parametrize("n", range(2, 32))
def test_a_run_of_spaces(tokenizer, n) -> None:
    assert ids(tokenizer, " " * n + "x")[0] == 50288 - n


@pytest.mark.parametrize("n", range(2, 10))
def test_a_run_of_tabs(tokenizer, n) -> None:
    assert ids(tokenizer, "\t" * n + "x")[0] == 50296 - n


def test_an_indented_line(tokenizer) -> None:
    assert ids(tokenizer, "    return x") == [50284, 7783, 2124]
    assert ids(tokenizer, " return") != [7783]


def test_the_page_reports_these_ids(tokenizer) -> None:
    reported = {said.figure: said.value for said in phi_tokens.runs_of_spaces.reported}
    assert reported["ids"] == ", ".join(map(str, ids(tokenizer, "    return x")))
    assert reported["tabs"] == f"2 to 9, from {ids(tokenizer, chr(9) * 2)[0]} down to {ids(tokenizer, chr(9) * 9)[0]}"
    rows = {said.figure: said.value for said in phi_tokens.padded_vocabulary.reported}
    assert rows["tokens"] == f"{len(tokenizer):,}"
    assert rows["spare"] == str(51200 - len(tokenizer))
