"""Padding, masks of the caller's own, and batches: the values of a prompt do not depend on its company."""

from __future__ import annotations

import pytest
import torch

from cutaway.errors import InputError
from tests import raw, tiny

PROMPTS = [[5, 9], [33, 2, 61, 17, 7], [7, 1, 40, 8, 3, 50, 4, 12]]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", tiny.KINDS)
def test_each_prompts_values_in_a_batch_are_those_of_the_prompt_alone(kind: str, attention: str) -> None:
    model = tiny.shared(kind, attention)
    names = [name for name in raw.WRITABLE if name not in raw.INTERIOR[:5]]
    together = model.read(PROMPTS, *names)
    for row, prompt in enumerate(PROMPTS):
        for path, value in model.read(prompt, *names).items():
            shared = together[path][row, -len(prompt) :]
            torch.testing.assert_close(shared, value[0], atol=2e-5, rtol=1e-4, msg=path)


def test_a_row_of_a_batch_of_seven_is_the_row_alone() -> None:
    model = tiny.shared()
    batch = torch.randint(1, tiny.VOCAB, (7, 9), generator=torch.Generator().manual_seed(0))
    for path, value in model.read(batch, "layer_output", "logits").items():
        torch.testing.assert_close(model.read(batch[3:4], path)[path][0], value[3], atol=2e-5, rtol=1e-4)


def test_what_stands_in_the_padding_changes_no_real_value() -> None:
    model = tiny.shared()
    other = {**tiny.LEFT_PADDED, "input_ids": tiny.LEFT_PADDED["input_ids"].clone()}
    real = tiny.LEFT_PADDED["attention_mask"].bool()
    other["input_ids"][~real] = 55
    one, two = model.read(tiny.LEFT_PADDED, "layer_output", "logits"), model.read(other, "layer_output", "logits")
    for path in one:
        torch.testing.assert_close(one[path][real], two[path][real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_mask_of_the_callers_own_hides_its_column(attention: str) -> None:
    hf, model = tiny.plain("P", attention), tiny.shared("P", attention)
    mask = torch.ones(3, 6, dtype=torch.long)
    mask[:, 2] = 0
    found = model.read(tiny.IDS, "attention_probabilities", "logits", "attention_mask", attention_mask=mask)
    assert torch.equal(found["attention_mask"], mask)
    for layer in range(tiny.LAYERS):
        assert (found[f"layers.{layer}.self_attn.attention_probabilities"][..., 3:, 2] == 0).all()
    expected = tiny.logits_of(hf, {"input_ids": tiny.IDS, "attention_mask": mask})
    torch.testing.assert_close(found["logits"], expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(expected, tiny.logits_of(hf), atol=0.1)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_mask_over_queries_and_keys_is_taken_as_it_is(dtype: torch.dtype) -> None:
    hf, model = tiny.plain(), tiny.shared()
    allowed = torch.ones(6, 6).tril().bool()
    allowed[4, 1] = False
    mask = allowed[None, None].expand(3, 1, 6, 6)
    if dtype == torch.float32:
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(dtype).min)
    with torch.no_grad():
        expected = hf(tiny.IDS, attention_mask=mask).logits
    found = model.read(tiny.IDS, "attention_probabilities", "logits", "next_token_probs", attention_mask=mask)
    assert (found["layers.0.self_attn.attention_probabilities"][:, :, 4, 1] == 0).all()
    torch.testing.assert_close(found["logits"], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found["next_token_probs"], expected[:, -1].softmax(-1), atol=1e-5, rtol=1e-4)


def test_padding_with_a_zero_id_as_the_first_token_is_told_from_a_real_zero() -> None:
    found = tiny.shared().read([[0, 5], [3, 0, 7], [1]], "attention_mask", "input_ids")
    assert found["attention_mask"].tolist() == [[0, 1, 1], [1, 1, 1], [0, 0, 1]]
    assert found["input_ids"].tolist() == [[0, 0, 5], [3, 0, 7], [0, 0, 1]]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("first", [5, 4])
@pytest.mark.parametrize("padded", [False, True])
def test_with_a_cache_a_pass_goes_on_where_the_last_one_ended(padded: bool, first: int, attention: str) -> None:
    hf, model = tiny.plain("P-gqa", attention), tiny.shared("P-gqa", attention)
    inputs = tiny.LEFT_PADDED if padded else tiny.as_inputs(tiny.IDS)
    names = ["attention_keys", "attention_values", "attention_probabilities", "layer_output", "logits"]
    whole = model.read(inputs, *names, "next_token_probs")
    mask = inputs["attention_mask"]
    real = mask[:, first:].bool()

    def cache():
        with torch.no_grad():
            return hf(inputs["input_ids"][:, :first], attention_mask=mask[:, :first]).cache

    new = inputs["input_ids"][:, first:]
    found = model.read(new, *names, "next_token_probs", attention_mask=mask, cache=cache())
    with torch.no_grad():
        expected = hf(new, attention_mask=mask, cache=cache()).logits
    if attention == "eager":
        assert torch.equal(found["logits"], expected)
    torch.testing.assert_close(found["logits"][real], whole["logits"][:, first:][real], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["next_token_probs"], whole["next_token_probs"], atol=1e-5, rtol=1e-3)
    for layer in range(tiny.LAYERS):
        at = f"layers.{layer}.self_attn.attention_"
        pattern = whole[at + "probabilities"][:, :, first:]
        torch.testing.assert_close(found[at + "probabilities"], pattern, atol=1e-5, rtol=1e-3)
        for name in ("keys", "values"):
            ours, once = found[at + name].transpose(1, 2), whole[at + name].transpose(1, 2)
            torch.testing.assert_close(ours[mask.bool()], once[mask.bool()], atol=1e-4, rtol=1e-4)
    if not padded:
        without_mask = model.read(new, "logits", cache=cache())["logits"]
        assert torch.equal(without_mask, hf(new, cache=cache()).logits)
        with pytest.raises(InputError, match=f"the ids are {6 - first} after {first} in the cache"):
            model.read(new, "logits", attention_mask=mask[:, first:], cache=cache())
