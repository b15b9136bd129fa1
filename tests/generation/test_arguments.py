"""What transformers' `generate` takes is passed on, and its results are plain transformers'."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from transformers import PreTrainedTokenizerFast, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from cutaway import StandardizedTransformer
from tests import tiny

PROMPTS = {
    "input_ids": torch.tensor([[0, 0, 5, 9], [33, 2, 61, 17]]),
    "attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]),
}


class Collected(BaseStreamer):
    """A streamer that keeps what it is given."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.ended = False

    def put(self, value: Tensor) -> None:
        self.tokens += value.flatten().tolist()

    def end(self) -> None:
        self.ended = True


def no_token_above_forty(_ids: Tensor, scores: Tensor) -> Tensor:
    scores = scores.clone()
    scores[:, 40:] = -float("inf")
    return scores


def at_seven(ids: Tensor, _scores: Tensor, **_: Any) -> Tensor:
    return torch.full((len(ids),), ids.shape[1] >= 7)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "sampling": {"do_sample": True, "temperature": 1.3, "top_k": 20},
    "several samples": {"do_sample": True, "num_return_sequences": 3},
    "beams": {"num_beams": 3, "do_sample": False},
    "beams returned": {"num_beams": 3, "num_return_sequences": 2, "do_sample": False},
    "logits processor": {"logits_processor": [no_token_above_forty], "do_sample": False},
    "stopping criteria": {"stopping_criteria": StoppingCriteriaList([at_seven]), "do_sample": False},
    "repetition penalty": {"repetition_penalty": 2.0, "do_sample": False},
    "without cache": {"use_cache": False, "do_sample": False},
    "static cache": {"cache_implementation": "static", "do_sample": False},
    "by chunks": {"prefill_chunk_size": 3, "do_sample": False},
    "min length": {"min_new_tokens": 3, "eos_token_id": [1, 3, 17, 30], "do_sample": False},
}


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_passed_on(name: str, asked: bool) -> None:
    hf, model = tiny.plain(), tiny.shared()
    arguments = {"max_new_tokens": 6, "pad_token_id": 0, **ARGUMENTS[name]}
    torch.manual_seed(7)
    expected = hf.generate(**PROMPTS, **arguments)
    torch.manual_seed(7)
    with model.generate(PROMPTS, **arguments) as run:
        for _ in run if asked else ():
            rows = model.layers[1].self_attn.attention_output.shape[0]
            assert model.next_token_probs.shape == (rows, 64)
    assert torch.equal(run.output, expected)
    assert not asked or rows == 2 * arguments.get("num_beams", 1) * (
        arguments.get("num_return_sequences", 1) if "num_beams" not in arguments else 1
    )


def test_a_streamer_is_given_each_token() -> None:
    streamer = Collected()
    with tiny.shared().generate([5, 9], max_new_tokens=4, do_sample=False, streamer=streamer) as run:
        pass
    assert streamer.tokens == run.output[0].tolist()
    assert streamer.ended


def test_a_dict_may_be_returned() -> None:
    hf, model = tiny.plain(), tiny.shared()
    arguments = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    expected = hf.generate(**PROMPTS, **arguments)
    with model.generate(PROMPTS, **arguments) as run:
        pass
    assert torch.equal(run.output.sequences, expected.sequences)
    assert torch.equal(run.sequences, expected.sequences)
    assert torch.equal(torch.stack(run.output.logits), torch.stack(expected.logits))


def test_a_generation_config_is_passed_on() -> None:
    from transformers import GenerationConfig

    config = GenerationConfig(max_new_tokens=3, do_sample=False, pad_token_id=0)
    with tiny.shared().generate(PROMPTS, generation_config=config) as run:
        pass
    assert torch.equal(run.output, tiny.plain().generate(**PROMPTS, generation_config=config))


@pytest.mark.parametrize("asked", [False, True])
def test_an_unknown_argument_raises_and_leaves_nothing(asked: bool) -> None:
    hf, model = tiny.plain(), tiny.shared()
    hooks = [(list(m._forward_hooks), list(m._forward_pre_hooks)) for m in hf.modules()]
    with pytest.raises(ValueError, match="max_new_tokenz"):
        with model.generate(PROMPTS, max_new_tokens=2, max_new_tokenz=3):
            if asked:
                model.logits
    assert [(list(m._forward_hooks), list(m._forward_pre_hooks)) for m in hf.modules()] == hooks


def with_likely(token: int) -> StandardizedTransformer:
    """A model that ends a text at `token`, by a bias of its head."""
    hf = tiny.fresh()
    with torch.no_grad():
        hf.lm_head.bias[token] += 1.5
    hf.generation_config.eos_token_id = token
    hf.generation_config.pad_token_id = 0
    return StandardizedTransformer(hf, check=False)


def test_an_early_end_ends_the_loop_and_the_code_after_it_runs() -> None:
    seen = 0
    for token in range(1, 64):
        model = with_likely(token)
        streams, after = [], False
        with model.generate([5, 9, 33], max_new_tokens=10, do_sample=False) as run:
            for _ in run:
                streams.append(model.layers[1].layer_output)
            after = True
        assert after
        new = run.output.shape[1] - 3
        assert len(streams) == new
        assert torch.equal(
            run.output,
            model.hf.generate(torch.tensor([[5, 9, 33]]), attention_mask=torch.ones(1, 3), max_new_tokens=10),
        )
        if new < 10:
            assert run.output[0, -1] == token
            seen += 1
        if seen == 2:
            return
    pytest.fail("no text ended early")


def test_rows_that_end_at_different_steps_are_filled_with_padding() -> None:
    prompts = [[5, 9], [33, 2, 61], [7]]
    for token in range(1, 64):
        model = with_likely(token)
        with model.generate(prompts, max_new_tokens=8, do_sample=False) as run:
            rows = [model.layers[2].layer_output.shape[0] for _ in run]
        new = run.output[:, 3:]
        ends = [row.tolist().index(token) if token in row else 8 for row in new]
        if len(set(ends)) > 1:
            assert rows == [3] * new.shape[1]
            assert all((row[end + 1 :] == 0).all() for row, end in zip(new, ends, strict=True))
            return
    pytest.fail("all texts ended together")


def test_text_is_one_string_for_one_prompt_and_a_list_for_a_batch() -> None:
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0")
    model = StandardizedTransformer(tiny.fresh(), tokenizer=tokenizer, check=False)
    with model.generate("w5 w9", max_new_tokens=3, do_sample=False) as run:
        pass
    new = [f"w{i}" for i in run.output[0, 2:].tolist() if i]
    assert run.text == " ".join(["w5", "w9", *new])
    assert run.new_text == " ".join(new)
    with model.generate(["w5 w9", "w7"], max_new_tokens=3, do_sample=False) as batch:
        pass
    assert batch.text[0] == run.text
    assert batch.text[1].startswith("w7 ")


def test_a_batch_generates_what_each_prompt_alone_generates_also_where_padding_is_the_end() -> None:
    prompts = [[5, 9], [33, 2, 61, 17, 7], [50, 4, 3, 29, 6, 11, 23, 3]]
    model = tiny.shared()
    for arguments in ({}, {"eos_token_id": 3, "pad_token_id": 3}):
        with model.generate(prompts, max_new_tokens=8, do_sample=False, **arguments) as run:
            pass
        for row, prompt in enumerate(prompts):
            with model.generate(prompt, max_new_tokens=8, do_sample=False, **arguments) as alone:
                pass
            new = alone.output[0, len(prompt) :]
            assert torch.equal(run.output[row, 8 : 8 + len(new)], new)
            assert not arguments or (run.output[row, 8 + len(new) :] == 3).all()
