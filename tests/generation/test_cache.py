"""The same edit at the same positions gives the same text and logits with the cache on and off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import InputError
from tests import raw, tiny
from tests.generation.test_steps import both

PROMPT = [5, 9, 33, 2, 61, 17]
KINDS = pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
NAMES = [name for name in raw.WRITABLE if name not in ("input_ids", "attention_mask", "logits", "lm_head_output")]


def grown(value: Tensor) -> Tensor:
    """Another change at each place of a head or of the stream, the same at every token and step."""
    return value * 1.5 + torch.linspace(-1, 1, value.shape[-1])


def uneven(pattern: Tensor) -> Tensor:
    """Half of what each query gives to the even keys, and less to some heads."""
    even = torch.arange(pattern.shape[-1]) % 2 == 0
    return pattern * torch.where(even, 0.5, 1.0) * torch.linspace(0.5, 1, pattern.shape[1])[:, None, None]


def run(model: Any, prompt: Any, name: str, positions: Any, use_cache: bool) -> tuple[Tensor, Tensor]:
    edit = uneven if name in ("attention_scores", "attention_probabilities") else grown
    arguments = {"output_logits": True, "return_dict_in_generate": True, "use_cache": use_cache, "do_sample": False}
    with model.hooks({raw.path_of(name, 1): edit}, positions=positions):
        with model.generate(prompt, max_new_tokens=6, **arguments) as run:
            pass
    return run.output.sequences, torch.stack(run.output.logits)


@pytest.mark.parametrize("positions", ["all", "prompt", "new", [2, 7]], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_edit_of_any_value_is_the_same_with_and_without_cache(name: str, positions: Any) -> None:
    model = tiny.shared()
    text, logits = run(model, PROMPT, name, positions, True)
    text_without, logits_without = run(model, PROMPT, name, positions, False)
    assert torch.equal(text, text_without)
    torch.testing.assert_close(logits, logits_without, rtol=1e-4, atol=1e-4)
    plain = tiny.plain().generate(
        torch.tensor([PROMPT]), max_new_tokens=6, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    assert not torch.allclose(torch.stack(plain.logits), logits, atol=1e-3)


@KINDS
@pytest.mark.parametrize("name", ["attention_queries", "attention_keys", "attention_values", "attention_probabilities"])
def test_in_every_family_and_in_padded_batches_too(kind: str, name: str) -> None:
    _, model = both(kind)
    batch = [[5, 9], [33, 2, 61, 17, 7], [50, 4, 12, 29, 6, 11, 23, 3]]
    for positions in ("all", [1, 6]):
        text, logits = run(model, batch, name, positions, True)
        text_without, logits_without = run(model, batch, name, positions, False)
        assert torch.equal(text, text_without)
        torch.testing.assert_close(logits, logits_without, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["attention_keys", "attention_values"])
@pytest.mark.parametrize("way", ["in place", "assigned", "by a function in place"])
def test_edits_of_keys_and_values_do_not_add_up_in_the_cache(name: str, way: str) -> None:
    model = tiny.shared()
    expected = run(model, PROMPT, name, None, False)[0]

    def in_place(value: Tensor) -> None:
        value[:] = grown(value)

    with model.hooks({raw.path_of(name, 1): in_place} if way == "by a function in place" else {}):
        with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as generation:
            for _ in generation:
                attention = model.layers[1].self_attn
                if way == "assigned":
                    setattr(attention, name, grown(getattr(attention, name)))
                elif way == "in place":
                    value = getattr(attention, name)
                    value[:] = grown(value)
    assert torch.equal(generation.output, expected)


def test_an_edit_of_keys_in_one_step_is_gone_in_the_next() -> None:
    model = tiny.shared()
    keys: dict[bool, list[Tensor]] = {False: [], True: []}
    for edited in keys:
        with model.generate(PROMPT, max_new_tokens=4, do_sample=False) as generation:
            for step in generation:
                keys[edited].append(model.layers[1].self_attn.attention_keys.save())
                if edited and step.index == 1:
                    model.layers[1].self_attn.attention_keys[:] = 9
    torch.testing.assert_close(keys[True][3][:, :, :7], keys[False][3][:, :, :7])


@pytest.mark.parametrize("name", ["attention_keys", "attention_values"])
def test_reading_keys_and_values_leaves_the_text_alone(name: str) -> None:
    model = tiny.shared()
    with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as generation:
        lengths = [getattr(model.layers[1].self_attn, name).shape[2] for _ in generation]
    ids = torch.tensor([PROMPT])
    assert lengths == [6, 7, 8, 9, 10, 11]
    assert torch.equal(generation.output, tiny.plain().generate(ids, max_new_tokens=6, do_sample=False))


@pytest.mark.parametrize("more", [3, 4])
def test_cached_positions_count_towards_the_context(more: int) -> None:
    hf, model = both("gpt2")
    ids = torch.randint(1, 64, (3, 48), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cache = hf(input_ids=ids[:, :45], attention_mask=torch.ones_like(ids[:, :45])).cache
    assert cache.get_seq_length() == 45
    ending = ids[:, -more:]
    if more == 4:
        with pytest.raises(InputError, match="49 tokens long, and the model's context is 48"):
            model.trace(ending, cache=cache)
        return
    with model.trace(ending, cache=cache):
        logits = model.logits
    with torch.no_grad():
        whole = hf(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    torch.testing.assert_close(logits, whole[:, 45:], atol=1e-4, rtol=1e-4)
