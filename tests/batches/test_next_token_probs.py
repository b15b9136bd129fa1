"""`next_token_probs` is taken at each row's last real token, in float32, whatever the call says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import UnavailableValueError
from tests import tiny
from tests.batches.test_padding import KINDS, of_kind

RIGHT = torch.tensor([[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]])
LAST = [1, 4, 3]


def expected(hf: Any, mask: Tensor, places: list[int], **arguments: Any) -> Tensor:
    with torch.no_grad():
        logits = hf(tiny.IDS, attention_mask=mask, **arguments).logits
    return logits[range(3), places].float().softmax(-1)


def asked(model: Any, **arguments: Any) -> list[Tensor]:
    with model.trace(tiny.IDS, **arguments):
        logits = model.logits
        traced = model.next_token_probs
    assert logits.shape[0] == 3
    return [traced, model.read(tiny.IDS, "next_token_probs", **arguments)["next_token_probs"]]


@KINDS
def test_under_right_padding_and_logits_to_keep(kind: str) -> None:
    hf, model = of_kind(kind, "sdpa")
    probs = expected(hf, RIGHT, LAST)
    for keep in (0, 5, 6, torch.tensor([1, 3, 4]), torch.tensor([0, 1, 2, 3, 4])):
        for found in asked(model, attention_mask=RIGHT, logits_to_keep=keep):
            torch.testing.assert_close(found, probs, rtol=1e-5, atol=1e-6)
    for keep in (1, 4, torch.tensor([5, 3])):
        with pytest.raises(UnavailableValueError, match="logits_to_keep"):
            asked(model, attention_mask=RIGHT, logits_to_keep=keep)
    left = RIGHT.flip(1)
    for keep in (1, 3, torch.tensor([5])):
        for found in asked(model, attention_mask=left, logits_to_keep=keep):
            placed = {"position_ids": (left.cumsum(1) - 1).clamp(min=0)} if kind == "gpt2" else {}
            torch.testing.assert_close(found, expected(hf, left, [5, 5, 5], **placed), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["hooks", "edited", "hooks in the body", "assigned", "in place", "inputs"])
def test_with_a_mask_that_is_edited(how: str) -> None:
    hf, model = tiny.plain(), tiny.shared()
    probs = expected(hf, RIGHT, LAST)
    edits: dict[str, Any] = {"attention_mask": lambda _: RIGHT}
    if how == "hooks":
        with model.hooks(edits):
            found = asked(model)
    elif how == "edited":
        found = asked(model.edited(edits))
    else:
        with model.trace(tiny.IDS):
            if how == "hooks in the body":
                with model.hooks(edits):
                    model.layers[0].layer_output
            elif how == "assigned":
                model.attention_mask = RIGHT
            elif how == "in place":
                model.attention_mask[:] = RIGHT
            else:
                args, kwargs = model.inputs
                model.inputs = (args, {**kwargs, "attention_mask": RIGHT})
            found = [model.next_token_probs]
    for one in found:
        assert torch.equal(one, probs)


def test_with_position_ids_and_with_a_cache() -> None:
    hf, model = tiny.plain(), tiny.shared()
    positions = torch.tensor([[3, 1, 0, 7, 9, 2]]).expand(3, -1)
    for found in asked(model, attention_mask=RIGHT, position_ids=positions):
        assert torch.equal(found, expected(hf, RIGHT, LAST, position_ids=positions))
    mask = torch.tensor([[0, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0]])
    probs = expected(hf, mask, [3, 5, 4])

    def cache() -> Any:
        with torch.no_grad():
            return hf(tiny.IDS[:, :2], attention_mask=mask[:, :2], use_cache=True).past_key_values

    with model.trace(tiny.IDS[:, 2:], attention_mask=mask, cache=cache()):
        model.logits
        traced = model.next_token_probs
    read = model.read(tiny.IDS[:, 2:], "next_token_probs", attention_mask=mask, cache=cache())
    for found in (traced, read["next_token_probs"]):
        torch.testing.assert_close(found, probs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_float32_from_the_logits(dtype: torch.dtype) -> None:
    hf, model = tiny.plain("P", "sdpa", dtype), tiny.shared("P", "sdpa", dtype)
    for found in asked(model, attention_mask=RIGHT):
        assert found.dtype == torch.float32
        assert torch.equal(found, expected(hf, RIGHT, LAST))


@pytest.mark.parametrize("arguments", [{}, {"cache_implementation": "static"}, {"use_cache": False}], ids=str)
def test_in_the_steps_of_a_generation_it_is_what_the_next_token_is_taken_from(arguments: dict[str, Any]) -> None:
    hf, model = tiny.plain(), tiny.shared()
    kept = {"max_new_tokens": 3, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    logits = hf.generate(**tiny.LEFT_PADDED, **kept, **arguments).logits
    with model.generate(tiny.LEFT_PADDED, **kept, **arguments) as run:
        found = [model.next_token_probs for _ in run]
    for one, other in zip(found, logits, strict=True):
        torch.testing.assert_close(one, other.softmax(-1), rtol=1e-5, atol=1e-6)


def test_a_row_without_a_real_token_has_none() -> None:
    mask = torch.ones_like(tiny.IDS)
    mask[1] = 0
    with pytest.raises(UnavailableValueError, match="row 1 of this pass has no real token"):
        asked(tiny.shared(), attention_mask=mask)
