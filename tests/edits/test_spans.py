"""A text's tokens in a prompt, as positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cutaway import StandardizedTransformer
from cutaway.errors import InputError
from tests import tiny

CODE = "def name_é(x):\n    return '🙂 ok' + x  # ok\n"


@pytest.fixture(scope="module")
def model() -> StandardizedTransformer:
    return StandardizedTransformer("phi-mini", check=False)


@pytest.mark.parametrize(
    "text", ["def", " name", "name", "é", "return", "    return", "🙂", "🙂 ok", "x):", "# ok", "\n    ", CODE]
)
def test_the_tokens_hold_the_text_and_none_fewer_do(model: Any, text: str) -> None:
    tokenizer = model.tokenizer
    ids = tokenizer(CODE)["input_ids"]
    found = model.positions(CODE, text)
    assert isinstance(found, range)
    assert text in tokenizer.decode(ids[found.start : found.stop])
    assert text not in tokenizer.decode(ids[found.start + 1 : found.stop])
    assert text not in tokenizer.decode(ids[found.start : found.stop - 1])


def test_occurrences_are_told_apart(model: Any) -> None:
    prompt = "the cat and the dog and the bird"
    with pytest.raises(InputError, match=r"'the' occurs 3 times in the prompt, at positions .*occurrence=0"):
        model.positions(prompt, "the")
    all_three = [model.positions(prompt, "the", occurrence=i) for i in (0, 1, 2)]
    ids = model.tokenizer(prompt)["input_ids"]
    assert all("the" in model.tokenizer.decode(ids[place.start : place.stop]) for place in all_three)
    assert all_three[0].stop <= all_three[1].start < all_three[2].start
    assert model.positions(prompt, "the", occurrence=-1) == all_three[2]
    with pytest.raises(InputError, match="occurs 3 times in the prompt; there is no occurrence=3"):
        model.positions(prompt, "the", occurrence=3)


@pytest.mark.parametrize(
    ("text", "words"),
    [("def nane", "Did you mean 'def name"), ("RETURN", "Did you mean 'return'"), ("", "not empty"), (3, "not empty")],
)
def test_a_text_that_is_not_there_is_refused_with_what_is_near(model: Any, text: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        model.positions("def name(x): return x", text)


def test_ids_batches_and_padding(model: Any) -> None:
    prompts = ["import os", "from os import path\nprint(os)"]
    one, two = (model.tokenizer(prompt)["input_ids"] for prompt in prompts)
    expected = [model.positions(prompts[0], "os"), model.positions(prompts[1], "os", occurrence=0)]
    assert model.positions(prompts, "os", occurrence=0) == expected
    assert model.positions([one, two], "os", occurrence=0) == expected
    assert model.positions(one, "os") == model.positions(torch.tensor(one), "os") == expected[0]
    model.tokenizer.pad_token = model.tokenizer.eos_token
    for side in ("left", "right"):
        batch = model.tokenizer(prompts, padding=True, padding_side=side, return_tensors="pt")
        assert model.positions(batch, ["os", "path"]) == [expected[0], model.positions(prompts[1], "path")]
    with pytest.raises(InputError, match="of row 0"):
        model.positions(prompts, "path")


def test_they_are_positions_for_reading_and_editing(model: Any) -> None:
    prompts = ["import os", "from os import path"]
    place = model.positions(prompts, "import")
    read = model.read(prompts, "layers.1.layer_output", positions=place)["layers.1.layer_output"]
    vector = torch.ones(model.hidden_size)
    with model.steer(0, vector, positions=place):
        steered = model.read(prompts, "layers.0.layer_output", positions=place)["layers.0.layer_output"]
    with model.steer(0, vector, positions=place[1]):
        others = model.read(prompts[1], "layers.0.layer_output", positions=0)["layers.0.layer_output"]
    for row, prompt in enumerate(prompts):
        ids = model.tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            states = model.hf(**ids, output_hidden_states=True).hidden_states
        torch.testing.assert_close(read[row], states[2][0, list(place[row])], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(steered[row], states[1][0, list(place[row])] + vector, rtol=1e-4, atol=1e-4)
        if row == 1:
            torch.testing.assert_close(others[0], states[1][0, 0], rtol=1e-4, atol=1e-4)


def test_without_a_tokenizer_it_is_said() -> None:
    with pytest.raises(InputError, match="has no tokenizer"):
        tiny.shared().positions([1, 2], "x")
