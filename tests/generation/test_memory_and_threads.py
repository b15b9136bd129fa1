"""A generation keeps what the user keeps, costs nothing where nothing is asked, and threads have their own."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from cutaway import StandardizedTransformer
from cutaway.errors import LateEditError, NoTraceError
from tests import tiny

PROMPT = [5, 9, 33, 2]


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_values_of_a_step_are_freed_as_the_next_begins(no_garbage_collection: None) -> None:
    model = tiny.shared()
    refs: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    with model.generate(PROMPT, max_new_tokens=8, do_sample=False) as run:
        for _ in run:
            alive.append(sum(ref() is not None for ref in refs))
            refs.append(weakref.ref(model.layers[0].self_attn.attention_keys))
            refs.append(weakref.ref(model.layers[1].layer_output))
            refs.append(weakref.ref(model.logits))
        kept = run.step.positions
    assert alive == [0] * 8
    assert not [ref for ref in refs if ref() is not None]
    assert kept.shape == (1, 1)


def test_a_value_that_is_kept_is_all_that_is_kept(no_garbage_collection: None) -> None:
    model = tiny.shared()
    with model.generate(PROMPT, max_new_tokens=4, do_sample=False) as run:
        kept = [model.layers[1].mlp.mlp_output for _ in run]
    refs, ended = [weakref.ref(value) for value in kept], weakref.ref(run)
    del run
    assert ended() is None
    assert all(ref() is not None for ref in refs)
    del kept
    assert not [ref for ref in refs if ref() is not None]


def test_many_generations_and_steps_leave_memory_flat() -> None:
    model = tiny.shared()

    def once() -> None:
        with model.steer(1, torch.ones(32), positions="new"):
            with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as run:
                for _ in run:
                    model.layers[0].self_attn.attention_probabilities
                    model.layers[2].layer_output += 1

    tracemalloc.start()
    try:
        for _ in range(30):  # until Python's own stores of small objects are full
            once()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(25):
            once()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 25_000


class Watcher(BaseStreamer):
    """Looks at the model between the passes."""

    def __init__(self, hf: Any) -> None:
        self.hf, self.hooks, self.tokens = hf, 0, 0

    def put(self, value: Tensor) -> None:
        self.tokens += value.numel()
        for module in self.hf.modules():
            self.hooks += len(module._forward_hooks) + len(module._forward_pre_hooks) + ("forward" in vars(module))
        assert self.hf.config._attn_implementation == "sdpa"

    def end(self) -> None:
        """Nothing is left to do."""


def test_with_nothing_asked_nothing_is_attached() -> None:
    hf = tiny.fresh()
    model, watcher = StandardizedTransformer(hf, check=False), Watcher(hf)
    with model.generate(PROMPT, attention_mask=torch.ones(1, 4), max_new_tokens=5, do_sample=False, streamer=watcher):
        pass
    assert (watcher.hooks, watcher.tokens) == (0, 9)
    with model.generate(PROMPT, max_new_tokens=5, do_sample=False, streamer=watcher):
        pass
    assert (watcher.hooks, watcher.tokens) == (1, 18)  # until the prompt's pass, whose mask transformers makes


def test_after_a_step_that_asked_the_rest_runs_to_its_end() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as run:
        stream = model.layers[0].layer_output
    with torch.no_grad():
        expected = hf(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states[1]
    torch.testing.assert_close(stream, expected)
    assert run.output.shape == (1, 10)


@pytest.mark.parametrize("when", ["in the step", "at the next step", "at the end"])
def test_an_edit_in_place_that_comes_too_late_is_refused(when: str) -> None:
    model = tiny.shared()
    with pytest.raises(LateEditError, match=r"layers\.0\.layer_output"):
        with model.generate(PROMPT, max_new_tokens=3, do_sample=False) as run:
            for step in run:
                stream = model.layers[0].layer_output
                model.layers[1].layer_output
                if step.index == (2 if when == "at the end" else 1):
                    stream[:] = 0
                    if when == "in the step":
                        model.layers[2].layer_output


def test_threads_generate_at_once_each_with_edits_at_its_own_positions() -> None:
    model = tiny.shared()
    prompts = [[5, 9, 33, 2], [7, 7], [50, 4, 12, 29, 6, 11]]
    vector = 6 * torch.randn(32, generator=torch.Generator().manual_seed(0))

    def generate(number: int) -> Tensor:
        with model.steer(1, vector, factor=number + 1.0, positions=[1, -1, 7]):
            with model.generate(prompts[number], max_new_tokens=5, do_sample=False) as run:
                for _ in run:
                    model.layers[0].layer_output
        return run.output

    expected = [generate(number) for number in range(3)]
    found: dict[int, list[Tensor]] = {number: [] for number in range(3)}
    start = threading.Barrier(3)

    def work(number: int) -> None:
        start.wait()
        for _ in range(5):
            found[number].append(generate(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        assert len(found[number]) == 5
        assert all(torch.equal(output, expected[number]) for output in found[number])


def test_a_generation_belongs_to_its_thread() -> None:
    model, raised = tiny.shared(), []

    def elsewhere(run: Any) -> None:
        try:
            next(iter(run))
        except NoTraceError as error:
            raised.append(error)

    with model.generate(PROMPT, max_new_tokens=2, do_sample=False) as run:
        thread = threading.Thread(target=elsewhere, args=(run,))
        thread.start()
        thread.join()
    assert len(raised) == 1
