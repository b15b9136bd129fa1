"""What a prompt may be given as, and what is said of one that cannot be run."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from cutaway import StandardizedTransformer
from cutaway.errors import DeviceError, DtypeError, InputError, ShapeError
from tests import tiny

WORDS = ["<pad>", "the", "cat", "sat", "on", "a", "mat"]


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>")


@pytest.fixture
def model(tokenizer: PreTrainedTokenizerFast) -> StandardizedTransformer:
    return StandardizedTransformer(tiny.plain(), tokenizer=tokenizer, check=False)


ONE = [[1, 2, 3]]
SEVERAL = [[0, 1, 2, 3], [4, 5, 6, 1], [0, 0, 0, 2]]


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("the cat sat", ONE),
        (["the cat sat"], ONE),
        ([1, 2, 3], ONE),
        ((1, 2, 3), ONE),
        ([[1, 2, 3]], ONE),
        ([np.int64(1), np.int64(2), np.int64(3)], ONE),
        (torch.tensor([1, 2, 3]), ONE),
        (torch.tensor([[1, 2, 3]]), ONE),
        (torch.tensor([[1, 2, 3]], dtype=torch.int32), ONE),
        (list(torch.tensor([1, 2, 3])), ONE),
        (range(1, 4), ONE),
        ({"input_ids": [[1, 2, 3]]}, ONE),
        (UserDict(input_ids=torch.tensor([[1, 2, 3]])), ONE),
        (["the cat sat", "on a mat the", "cat"], SEVERAL),
        ([[1, 2, 3], [4, 5, 6, 1], [2]], SEVERAL),
        ([torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6, 1]), torch.tensor([2])], SEVERAL),
    ],
    ids=repr,
)
def test_a_prompt_in_any_form(prompt: Any, ids: list[list[int]], model: StandardizedTransformer) -> None:
    found = model.read(prompt, "input_ids", "attention_mask", "input_size", "logits")
    assert found["input_ids"].tolist() == ids
    assert found["input_ids"].dtype == torch.int64
    assert tuple(found["input_size"]) == (len(ids), len(ids[0]))
    mask = torch.tensor(ids) != 0
    assert torch.equal(found["attention_mask"].bool(), mask)
    expected = tiny.logits_of(model.hf, {"input_ids": torch.tensor(ids), "attention_mask": mask.long()})
    assert torch.equal(found["logits"], expected)
    with model.trace(prompt):
        assert torch.equal(model.logits, expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_tokenizers_output_is_taken_with_its_mask(
    side: str, model: StandardizedTransformer, tokenizer: PreTrainedTokenizerFast
) -> None:
    encoded = tokenizer(["the cat", "a mat on the mat"], return_tensors="pt", padding=True, padding_side=side)
    encoded.pop("token_type_ids", None)
    found = model.read(encoded, "input_ids", "attention_mask", "logits")
    assert torch.equal(found["input_ids"], encoded["input_ids"])
    assert torch.equal(found["attention_mask"], encoded["attention_mask"])
    assert torch.equal(found["logits"], tiny.logits_of(model.hf, dict(encoded)))


def test_a_tokenizer_is_used_as_it_is(tokenizer: PreTrainedTokenizerFast) -> None:
    """What it adds is added, and the wrapper leaves its padding side as it was."""
    tokenizer.padding_side = "right"
    model = StandardizedTransformer(tiny.plain(), tokenizer=tokenizer, check=False)
    model.read(["the cat", "a mat on"], "logits")
    assert tokenizer.padding_side == "right"
    assert model.read("the cat", "input_ids")["input_ids"].tolist() == [tokenizer("the cat")["input_ids"]]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ([[]], "the prompt is empty"),
        (torch.empty(0, dtype=torch.long), "the prompt is empty"),
        (torch.empty(2, 0, dtype=torch.long), "the prompt is empty"),
        (["the cat", ""], "row 1 of the batch is empty"),
        ([[1, 2], []], "row 1 of the batch is empty"),
        (["the cat", 3], "mixes"),
        ([[1, 2], "the cat"], "mixes"),
        ([1, [2, 3]], "mixes"),
        ([1.5, 2.0], "mixes float"),
        ([True, False], "mixes bool"),
        (torch.tensor([0.5, 1.0]), "ids are integers"),
        (torch.ones(2, 2, 2, dtype=torch.long), "of shape [2, 2, 2]"),
        (torch.ones(2, 2, dtype=torch.bool), "ids are integers"),
        (3, "it was given a int"),
        (None, "it was given a NoneType"),
        (b"the cat", "it was given a bytes"),
        ({"ids": [1]}, "must hold `input_ids`, or `inputs_embeds`; it holds ids"),
        ({}, "it holds nothing"),
        ([1, 64], "id 64 is outside the embedding, which has 64 rows"),
        ([-1, 2], "id -1 is outside the embedding"),
    ],
    ids=repr,
)
def test_a_prompt_that_cannot_be_run_says_why(prompt: Any, words: str, model: StandardizedTransformer) -> None:
    for run in (model.trace, model.read):
        with pytest.raises(InputError) as caught:
            run(prompt)
        assert words in str(caught.value)


def test_a_text_without_a_tokenizer_says_what_to_give() -> None:
    with pytest.raises(InputError, match=r"has no tokenizer.*Give ids, or a tokenizer"):
        tiny.shared().read("the cat", "logits")


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.ones(2, 6), "the mask has 2 rows and the ids have 3"),
        (torch.ones(3, 5), "the mask is 5 long and the ids are 6"),
    ],
)
def test_a_mask_that_does_not_fit_says_so(mask: torch.Tensor, words: str) -> None:
    with pytest.raises(InputError) as caught:
        tiny.shared().trace(tiny.IDS, attention_mask=mask)
    assert words in str(caught.value)


def test_a_mask_may_be_a_list_and_may_go_with_any_prompt() -> None:
    model = tiny.shared()
    expected = tiny.logits_of(tiny.plain(), tiny.LEFT_PADDED)
    ids, mask = (tensor.tolist() for tensor in tiny.LEFT_PADDED.values())
    assert torch.equal(model.read(ids, "logits", attention_mask=mask)["logits"], expected)


@pytest.mark.parametrize(
    ("new", "error", "words"),
    [
        (torch.zeros(3, 6, 31), ShapeError, "has shape [3, 6, 32] [batch seq hidden_size]; it was given [3, 6, 31]"),
        (torch.zeros(32), ShapeError, "To set part of it, write into a slice"),
        (torch.zeros(3, 6, 32, dtype=torch.float64), DtypeError, "is float32; it was given float64. Convert it"),
        (torch.zeros(3, 6, 32, device="meta"), DeviceError, "is on cpu; it was given a tensor on meta. Move it"),
        (0.5, DtypeError, "is a tensor; it was given a float"),
        (None, DtypeError, "is a tensor; it was given a NoneType"),
    ],
)
def test_a_replacement_that_does_not_fit_says_what_would(new: Any, error: type[Exception], words: str) -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        with pytest.raises(error) as caught:
            model.layers[1].layer_output = new
        assert torch.equal(model.logits, tiny.logits_of(tiny.plain()))
    assert words in str(caught.value)
    assert "`layers.1.layer_output`" in str(caught.value)
