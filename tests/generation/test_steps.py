"""Values of a generation: which pass they belong to, and that they are the plain model's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import NoTraceError, OrderError
from tests import tiny
from tests.families import models

KINDS = ["phi", "llama", "gpt2", "neox"]
PROMPT = [5, 9, 33, 2, 61]
CHANGE = 9 * torch.randn(32, generator=torch.Generator().manual_seed(0))


def both(kind: str) -> tuple[Any, Any]:
    """The plain model and the wrapped one."""
    return (tiny.plain(), tiny.shared()) if kind == "phi" else (models.plain(kind), models.wrapped(kind))


def greedy(hf: Any, prompt: list[int], new: int, **arguments: Any) -> Tensor:
    ids = torch.tensor([prompt])
    return hf.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, **arguments)


def hooks_of(hf: Any) -> list[tuple[list[int], list[int]]]:
    return [(list(m._forward_hooks), list(m._forward_pre_hooks)) for m in hf.modules()]


@pytest.mark.parametrize("kind", KINDS)
def test_with_nothing_asked_it_is_plain_generate(kind: str) -> None:
    hf, model = both(kind)
    with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as run:
        pass
    assert torch.equal(run.output, greedy(hf, PROMPT, 6))


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_values_of_all_steps_are_those_of_one_pass_over_the_whole_text(kind: str, use_cache: bool) -> None:
    hf, model = both(kind)
    streams, patterns, probs = [], [], []
    with model.generate(PROMPT, max_new_tokens=6, do_sample=False, use_cache=use_cache) as run:
        for step in run:
            own = slice(None) if step.index == 0 or use_cache else slice(-1, None)
            patterns.append(model.layers[0].self_attn.attention_probabilities[0, :, own])
            streams.append(model.layers[1].layer_output[0, own])
            probs.append(model.next_token_probs[0])
    whole = run.output[:, :-1]
    with torch.no_grad():
        expected = hf(whole, output_hidden_states=True)
    torch.testing.assert_close(torch.cat(streams), expected.hidden_states[2][0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.stack(probs), expected.logits[0, 4:].softmax(-1), rtol=1e-4, atol=1e-5)
    assert [p.shape[-2:] for p in patterns] == [(5, 5), *((1, n) for n in range(6, 11))]
    for pattern in patterns:
        torch.testing.assert_close(pattern.sum(-1), torch.ones(pattern.shape[:-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_values_asked_before_any_step_belong_to_the_prompts_pass(kind: str) -> None:
    hf, model = both(kind)
    with model.generate(PROMPT, max_new_tokens=3, do_sample=False) as run:
        stream = model.layers[1].layer_output
        indices = [step.index for step in run]
    assert indices == [0, 1, 2]
    with torch.no_grad():
        expected = hf(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states[2]
    torch.testing.assert_close(stream, expected, rtol=1e-5, atol=1e-5)


def test_a_step_tells_its_tokens_and_their_positions() -> None:
    seen = []
    with tiny.shared().generate([[2, 61], PROMPT], max_new_tokens=3, do_sample=False) as run:
        for step in run:
            seen.append((step.index, step.input_ids, step.positions.tolist()))
    assert [(index, positions) for index, _, positions in seen] == [
        (0, [[-1, -1, -1, 0, 1], [0, 1, 2, 3, 4]]),
        (1, [[2], [5]]),
        (2, [[3], [6]]),
    ]
    assert torch.equal(torch.cat([ids for _, ids, _ in seen], dim=1), run.output[:, :-1])


def test_edits_in_a_step_reach_the_text_and_no_other_step() -> None:
    hf, model = tiny.plain(), tiny.shared()
    calls = []

    def in_the_third_pass(_module: Any, _args: Any, output: Tensor) -> Tensor | None:
        calls.append(1)
        return output + CHANGE if len(calls) == 3 else None

    handle = hf.model.layers[1].register_forward_hook(in_the_third_pass)
    expected = greedy(hf, PROMPT, 6)
    handle.remove()
    for assigned in (True, False):
        with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as run:
            for step in run:
                if step.index == 2 and assigned:
                    model.layers[1].layer_output = model.layers[1].layer_output + CHANGE
                elif step.index == 2:
                    model.layers[1].layer_output += CHANGE
        assert torch.equal(run.output, expected)
    assert not torch.equal(expected, greedy(hf, PROMPT, 6))


def test_logits_set_by_hand_choose_the_token() -> None:
    model = tiny.shared()
    with model.generate(PROMPT, max_new_tokens=4, do_sample=False) as run:
        for step in run:
            model.logits[:, -1, 10 + step.index] = 1e4
    assert run.output[0].tolist() == [*PROMPT, 10, 11, 12, 13]


def test_order_holds_within_a_step_and_starts_afresh_with_the_next() -> None:
    model = tiny.shared()
    with model.generate(PROMPT, max_new_tokens=3, do_sample=False) as run:
        for step in run:
            model.layers[2].layer_output
            if step.index == 1:
                with pytest.raises(OrderError, match=r"layers\.0\.layer_output"):
                    model.layers[0].layer_output
    assert torch.equal(run.output, greedy(tiny.plain(), PROMPT, 3))


def test_a_loop_that_is_left_stays_in_its_step_and_generate_runs_to_its_end() -> None:
    model = tiny.shared()
    with model.generate(PROMPT, max_new_tokens=5, do_sample=False) as run:
        for step in run:
            if step.index == 2:
                break
        assert run.step.index == 2
        assert model.layers[0].layer_output.shape == (1, 1, 32)
        rest = [step.index for step in run]
        assert list(run) == []
    assert rest == [2, 3, 4]
    assert torch.equal(run.output, greedy(tiny.plain(), PROMPT, 5))


def test_after_the_last_step_there_is_nothing_to_ask() -> None:
    model = tiny.shared()
    with model.generate(PROMPT, max_new_tokens=2, do_sample=False) as run:
        for _ in run:
            pass
        with pytest.raises(NoTraceError, match="ended"):
            model.logits
    assert run.output.shape == (1, 7)


def test_output_is_there_after_the_block_only() -> None:
    with tiny.shared().generate(PROMPT, max_new_tokens=2, do_sample=False) as run:
        with pytest.raises(NoTraceError, match="once the with-block is left"):
            run.output
    assert run.output.shape == (1, 7)
    with pytest.raises(NoTraceError, match="no tokenizer"):
        run.text


def test_an_error_in_a_step_leaves_the_model_plain() -> None:
    hf, model = tiny.plain(), tiny.shared()
    hooks = hooks_of(hf)
    with pytest.raises(ZeroDivisionError):
        with model.generate(PROMPT, max_new_tokens=5, do_sample=False) as run:
            for step in run:
                model.layers[1].self_attn.attention_probabilities
                if step.index == 1:
                    raise ZeroDivisionError
    assert hooks_of(hf) == hooks
    assert hf.config._attn_implementation == "sdpa"
    with model.generate(PROMPT, max_new_tokens=3, do_sample=False) as again:
        pass
    assert torch.equal(again.output, greedy(hf, PROMPT, 3))


def test_a_read_in_the_middle_of_a_generation_leaves_it_alone() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.generate(PROMPT, max_new_tokens=4, do_sample=False) as run:
        for _ in run:
            model.layers[0].layer_output
            assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(hf))
            model.layers[2].layer_output
    assert torch.equal(run.output, greedy(hf, PROMPT, 4))


def test_without_a_block_it_is_run_when_its_output_is_asked_for() -> None:
    hf, model = tiny.plain(), tiny.shared()
    passes = []
    handle = hf.register_forward_hook(lambda *_: passes.append(1))
    try:
        run = model.generate(tiny.IDS, max_new_tokens=3, do_sample=False)
        assert not passes
        assert torch.equal(run.sequences, run.output)
        assert len(passes) == 3
    finally:
        handle.remove()
    assert torch.equal(run.output, hf.generate(tiny.IDS, max_new_tokens=3, do_sample=False))
    with pytest.raises(NoTraceError):
        next(iter(model.generate(tiny.IDS, max_new_tokens=3)))


def test_a_block_that_was_left_by_an_error_has_no_output() -> None:
    with pytest.raises(ZeroDivisionError), tiny.shared().generate(tiny.IDS, max_new_tokens=3) as run:
        raise ZeroDivisionError
    with pytest.raises(NoTraceError, match="left by an error"):
        run.output
