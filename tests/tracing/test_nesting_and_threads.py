"""Traces nest, threads trace one model at once, and each gets its own values."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, NoTraceError
from tests import loops, raw, tiny

ONE, OTHER = tiny.IDS, tiny.IDS.flip(1) + 1


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def expected(ids: torch.Tensor, name: str, layer: int, model: str = "P") -> torch.Tensor:
    return raw.value(tiny.plain(model), tiny.as_inputs(ids), name, layer)


def test_a_trace_inside_a_trace_of_the_same_model() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.trace(ONE):
        model.layers[0].mlp.mlp_output += 1
        outer = model.layers[1].layer_input
        with model.trace(OTHER):
            inner = model.layers[1].layer_input
            inner_pattern = model.layers[1].self_attn.attention_probabilities
            inner_logits = model.logits
        outer_pattern = model.layers[1].self_attn.attention_probabilities
        outer_logits = model.logits
    assert torch.equal(inner, expected(OTHER, "layer_input", 1))
    torch.testing.assert_close(inner_pattern, expected(OTHER, "attention_probabilities", 1))
    torch.testing.assert_close(inner_logits, tiny.logits_of(hf, OTHER), atol=1e-5, rtol=1e-5)
    edited = raw.edited_logits(hf, tiny.as_inputs(ONE), "mlp_output", 0, lambda value: value + 1)
    torch.testing.assert_close(outer_logits, edited, atol=1e-5, rtol=1e-5)
    assert not torch.equal(outer, inner)
    assert not torch.allclose(outer_pattern, inner_pattern)


def test_reading_inside_a_trace_that_waits_in_an_attention() -> None:
    model = tiny.shared()
    with model.trace(ONE):
        model.layers[1].self_attn.attention_scores += 1
        other = model.read(OTHER, "layers.1.self_attn.attention_scores", "logits")
        model.layers[1].self_attn.attention_probabilities
    torch.testing.assert_close(
        other["layers.1.self_attn.attention_scores"], expected(OTHER, "attention_scores", 1), atol=1e-4, rtol=1e-5
    )


def test_traces_of_two_models_interleave() -> None:
    first, second = tiny.shared("P"), tiny.shared("P-gqa")
    with first.trace(ONE), second.trace(OTHER):
        a = first.layers[0].layer_output
        b = second.layers[0].layer_output
        second.layers[1].mlp.mlp_output = first.layers[1].mlp.mlp_output
        c, d = first.logits, second.logits
    assert torch.equal(a, expected(ONE, "layer_output", 0))
    assert torch.equal(b, expected(OTHER, "layer_output", 0, "P-gqa"))
    assert torch.equal(c, tiny.logits_of(tiny.plain("P"), ONE))
    patch = expected(ONE, "mlp_output", 1)
    patched = raw.edited_logits(tiny.plain("P-gqa"), tiny.as_inputs(OTHER), "mlp_output", 1, lambda _: patch)
    assert torch.equal(d, patched)


def test_two_models_that_share_a_config_object() -> None:
    config = tiny.config()
    torch.manual_seed(0)
    models = [StandardizedTransformer(type(tiny.plain())(config).eval(), check=False) for _ in range(2)]
    assert models[0].config is models[1].config
    plain = [tiny.logits_of(model.hf, ONE) for model in models]
    with models[0].trace(ONE):
        models[0].layers[0].self_attn.attention_scores
        with models[1].trace(ONE):
            models[1].layers[1].self_attn.attention_scores
            inner = models[1].logits
        outer = models[0].logits
    torch.testing.assert_close(outer, plain[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(inner, plain[1], atol=1e-5, rtol=1e-5)
    assert config._attn_implementation == "sdpa"


def test_the_same_trace_cannot_be_opened_inside_itself() -> None:
    trace = tiny.shared().trace(ONE)
    with trace, pytest.raises(CutawayError, match="open already"), trace:
        pass


def test_a_trace_belongs_to_its_thread() -> None:
    model, errors = tiny.shared(), []

    def ask() -> None:
        try:
            model.layers[0].layer_output
        except NoTraceError as error:
            errors.append(str(error))

    with model.trace(ONE):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert torch.equal(model.logits, tiny.logits_of(tiny.plain(), ONE))
    assert len(errors) == 1


def many_at_once(*work: Callable[[int], None], rounds: int) -> None:
    barrier = threading.Barrier(len(work))

    def run(one: Callable[[int], None]) -> None:
        barrier.wait()
        for i in range(rounds):
            one(i)

    with ThreadPoolExecutor(len(work)) as pool:
        for future in [pool.submit(run, one) for one in work]:
            future.result()


def test_threads_trace_one_model_at_once_each_with_its_own_edits(eager_switching: None) -> None:
    hf, model = tiny.plain(), tiny.shared()
    before = tiny.logits_of(hf, ONE)
    prompts = [ONE + i for i in range(3)]
    wanted = [
        raw.edited_logits(hf, tiny.as_inputs(ids), "mlp_output", 1, lambda value, i=i: value + i)
        for i, ids in enumerate(prompts)
    ]

    def work(which: int) -> Callable[[int], None]:
        def once(_round: int) -> None:
            with model.trace(prompts[which]):
                model.layers[0].layer_output
                model.layers[1].mlp.mlp_output += which
                assert torch.equal(model.logits, wanted[which])

        return once

    many_at_once(*map(work, range(3)), rounds=15)
    assert torch.equal(tiny.logits_of(hf, ONE), before)


def test_threads_read_the_attention_interior_while_a_plain_forward_runs(eager_switching: None) -> None:
    hf, model = tiny.plain(), tiny.shared()
    plain = tiny.logits_of(hf, tiny.LEFT_PADDED)
    prompts = [ONE, OTHER]
    patterns = [expected(ids, "attention_probabilities", 1) for ids in prompts]

    def read(which: int) -> Callable[[int], None]:
        def once(_round: int) -> None:
            with model.trace(prompts[which]):
                pattern = model.layers[1].self_attn.attention_probabilities
            torch.testing.assert_close(pattern, patterns[which], atol=1e-5, rtol=1e-5)

        return once

    def plain_forward(_round: int) -> None:
        assert torch.equal(tiny.logits_of(hf, tiny.LEFT_PADDED), plain)

    many_at_once(read(0), read(1), plain_forward, plain_forward, rounds=60)
    assert hf.config._attn_implementation == "sdpa"
    assert not [name for name in AttentionInterface._global_mapping if "cutaway" in name]
    assert not [name for name in AttentionMaskInterface._global_mapping if "cutaway" in name]


def test_function_hooks_of_one_thread_leave_another_alone() -> None:
    hf, model = tiny.plain(), tiny.shared()
    before, seen = tiny.logits_of(hf, ONE), []

    def other() -> None:
        seen.append(tiny.logits_of(hf, ONE))
        seen.append(model.read(ONE, "logits")["logits"])

    with model.hooks({"layers.1.self_attn.attention_values": lambda value: value + 1}):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not torch.equal(tiny.logits_of(hf, ONE), before)
    assert all(torch.equal(logits, before) for logits in seen)
    assert len(seen) == 2


def test_tasks_of_an_event_loop_trace_one_model_in_turns() -> None:
    model = tiny.shared()

    async def task(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with model.trace(ids):
            first = model.layers[0].layer_output
            await asyncio.sleep(0)
            return first, model.logits

    async def both() -> list[tuple[torch.Tensor, torch.Tensor]]:
        return await asyncio.gather(task(ONE), task(OTHER))

    results = loops.run(both())
    for ids, (first, logits) in zip((ONE, OTHER), results, strict=True):
        assert torch.equal(first, expected(ids, "layer_output", 0))
        assert torch.equal(logits, tiny.logits_of(tiny.plain(), ids))
