"""Phi-3's long rope runs the prompt again where the text outgrows the original context; positions go on to hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Phi3Config, Phi3ForCausalLM

from cutaway import StandardizedTransformer

PROMPT, NEW, ORIGINAL = [5, 9, 33, 2, 61, 17], 8, 8
CHANGE = 4 * torch.randn(32, generator=torch.Generator().manual_seed(0))
LOGITS = {"output_logits": True, "return_dict_in_generate": True, "do_sample": False, "max_new_tokens": NEW}


@pytest.fixture(scope="module")
def model() -> StandardizedTransformer:
    factors = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.5, 2.0, 3.0, 4.0],
        "original_max_position_embeddings": ORIGINAL,
    }
    config = Phi3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=48,
        original_max_position_embeddings=ORIGINAL,
        rope_parameters=factors,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf = Phi3ForCausalLM(config).eval()
    return StandardizedTransformer(hf, check=False)


def plain(hf: Any, edit: Any, **arguments: Any) -> Any:
    """transformers' generate, with `edit(stream, positions)` made by a raw hook that knows which tokens it is given."""
    total = 0

    def note(_module: Any, _args: Any, kwargs: Any) -> None:
        nonlocal total
        given = kwargs["input_ids"].shape[1]
        total = given if given > 1 else total + 1

    def change(_module: Any, _args: Any, stream: Tensor) -> Tensor:
        return edit(stream.clone(), range(total - stream.shape[1], total))

    handles = [
        hf.register_forward_pre_hook(note, with_kwargs=True),
        hf.model.layers[1].register_forward_hook(change),
    ]
    try:
        return hf.generate(torch.tensor([PROMPT]), attention_mask=torch.ones(1, 6), **LOGITS, **arguments)
    finally:
        for handle in handles:
            handle.remove()


def added(value: Tensor) -> Tensor:
    return value + CHANGE


def test_steps_tell_where_their_tokens_stand_when_the_prompt_is_run_again(model: StandardizedTransformer) -> None:
    with model.generate(PROMPT, max_new_tokens=NEW, do_sample=False) as run:
        positions = [step.positions[0].tolist() for step in run]
    assert positions == [list(range(6)), [6], [7], list(range(9)), [9], [10], [11], [12]]
    assert torch.equal(run.output, model.hf.generate(torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False))


@pytest.mark.parametrize("chosen", [[3], [7], [8], [3, 7, 10], list(range(6)), list(range(6, 40))], ids=str)
def test_a_position_is_the_same_token_before_and_after(model: StandardizedTransformer, chosen: list[int]) -> None:
    def edit(stream: Tensor, positions: range) -> Tensor:
        for place, position in enumerate(positions):
            if position in chosen:
                stream[:, place] += CHANGE
        return stream

    expected = plain(model.hf, edit)
    untouched = plain(model.hf, lambda stream, _: stream)
    assert not torch.allclose(torch.stack(expected.logits), torch.stack(untouched.logits), atol=1e-2)
    names = {tuple(range(6)): "prompt", tuple(range(6, 40)): "new"}
    for use_cache in (True, False):
        with model.hooks({"layers.1.layer_output": added}, positions=names.get(tuple(chosen), chosen)):
            with model.generate(PROMPT, use_cache=use_cache, **LOGITS) as run:
                pass
        assert torch.equal(run.output.sequences, expected.sequences)
        torch.testing.assert_close(torch.stack(run.output.logits), torch.stack(expected.logits), rtol=1e-4, atol=1e-4)


def test_a_step_counts_tokens_and_not_the_length_of_its_pass(model: StandardizedTransformer) -> None:
    def edit(stream: Tensor, positions: range) -> Tensor:
        if 8 in positions:
            stream[:, 8 - positions[0]] += CHANGE
        return stream

    expected = plain(model.hf, edit)
    with model.hooks({"layers.1.layer_output": added}, step=3), model.generate(PROMPT, **LOGITS) as run:
        pass
    torch.testing.assert_close(torch.stack(run.output.logits), torch.stack(expected.logits), rtol=1e-4, atol=1e-4)


def test_values_kept_by_position_are_those_of_one_pass_over_the_final_text(model: StandardizedTransformer) -> None:
    kept: dict[int, Tensor] = {}
    with model.generate(PROMPT, max_new_tokens=NEW, do_sample=False) as run:
        for step in run:
            stream = model.layers[1].layer_output[0]
            kept.update(zip(step.positions[0].tolist(), stream, strict=True))
    assert sorted(kept) == list(range(13))
    with torch.no_grad():
        whole = model.hf(run.output[:, :-1], output_hidden_states=True).hidden_states[2][0]
    torch.testing.assert_close(torch.stack([kept[i] for i in range(13)]), whole, rtol=1e-4, atol=1e-4)
