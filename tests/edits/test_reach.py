"""An edit acts in the context that opened it, follows it where it is carried, and acts in no other."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import CutawayError
from tests import loops, tiny
from tests.edits.test_carrier import hooks_of
from tests.edits.test_lasting import PROMPT, VECTOR, by_hook, generated, logits_of

PATH = "model.layers.1"


def plain() -> Tensor:
    return tiny.logits_of(tiny.plain())


def steered(times: float = 1.0) -> Tensor:
    return by_hook(tiny.plain(), PATH, logits_of, lambda value: value + times * VECTOR)


def read() -> Tensor:
    return tiny.shared().read(tiny.IDS, "logits")["logits"]


def call() -> Tensor:
    return tiny.logits_of(tiny.plain())


def in_thread(function: Callable[[], Any], *, carried: bool) -> Any:
    found: list[Any] = []
    target: Any = contextvars.copy_context().run if carried else lambda run: run()
    thread = threading.Thread(target=lambda: found.append(target(function)), name="the other")
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("run", [read, call])
def test_it_follows_the_context_into_threads_and_tasks(run: Callable[[], Tensor]) -> None:
    model, expected = tiny.shared(), steered()

    async def main() -> list[Tensor]:
        async def task() -> Tensor:
            return run()

        with model.steer(1, VECTOR):
            found = [await asyncio.to_thread(run), await asyncio.create_task(task())]
            found += await asyncio.gather(task(), task())
        return [*found, run()]

    *inside, after = loops.run(main())
    assert all(torch.equal(logits, expected) for logits in inside)
    assert torch.equal(after, plain())
    with model.steer(1, VECTOR):
        assert torch.equal(in_thread(run, carried=True), expected)
    with model.steer(1, VECTOR), ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(contextvars.copy_context().run, run).result(), expected)


@pytest.mark.parametrize("run", [read, call])
def test_one_tasks_edit_does_not_act_in_anothers_pass(run: Callable[[], Tensor]) -> None:
    model = tiny.shared()
    ready, done = asyncio.Event(), asyncio.Event()

    async def steering() -> Tensor:
        with model.steer(1, VECTOR):
            ready.set()
            await done.wait()
            return run()

    async def other() -> list[Tensor]:
        await ready.wait()
        found = [run()]
        with model.steer(1, VECTOR, factor=2.0):
            found.append(run())
        done.set()
        return found

    async def main() -> Any:
        return await asyncio.gather(steering(), other())

    first, (second, third) = loops.run(main())
    assert torch.equal(first, steered())
    assert torch.equal(second, plain())
    assert torch.equal(third, steered(2))


def test_a_trace_that_waits_in_one_task_is_left_alone_by_the_edit_of_another() -> None:
    model = tiny.shared()

    async def tracing(turns: list[asyncio.Event]) -> Tensor:
        with model.trace(tiny.IDS):
            model.layers[0].layer_output
            turns[0].set()
            await turns[1].wait()
            return model.logits

    async def steering(turns: list[asyncio.Event]) -> Tensor:
        await turns[0].wait()
        with model.steer(1, VECTOR):
            turns[1].set()
            await asyncio.sleep(0.01)
            return read()

    async def main() -> Any:
        turns = [asyncio.Event(), asyncio.Event()]
        return await asyncio.gather(tracing(turns), steering(turns))

    traced, found = loops.run(main())
    assert torch.equal(traced, plain())
    assert torch.equal(found, steered())


def test_an_edit_opened_in_one_thread_and_left_in_another_acts_where_it_was_opened() -> None:
    model = tiny.shared()
    expected, without = steered(), plain()
    edit = model.steer(1, VECTOR)
    edit.__enter__()
    assert torch.equal(read(), expected)
    assert torch.equal(in_thread(read, carried=False), without)
    in_thread(lambda: edit.__exit__(None, None, None), carried=False)
    assert torch.equal(read(), without)
    assert hooks_of(tiny.plain()) == 0


STREAMING = r"never called\. The model ran in thread 'the other' meanwhile.*copy_context"


@pytest.mark.parametrize("how", ["hooks", "steer", "editing"])
def test_a_model_that_ran_out_of_reach_is_named(how: str) -> None:
    model, function = tiny.shared(), {"layers.1.layer_output": lambda value: value + VECTOR}
    edit = model.steer(1, VECTOR) if how == "steer" else getattr(model, how)(function)
    with pytest.raises(CutawayError, match=STREAMING), edit:
        found = in_thread(lambda: generated(tiny.plain()), carried=False)
    assert torch.equal(found, generated(tiny.plain()))
    with model.steer(1, VECTOR):
        found = in_thread(lambda: generated(tiny.plain()), carried=True)
    assert torch.equal(found, by_hook(tiny.plain(), PATH, generated))


def test_a_task_that_is_out_of_reach_is_named() -> None:
    async def main() -> None:
        opened, ran = asyncio.Event(), asyncio.Event()

        async def other() -> None:
            await opened.wait()
            read()
            ran.set()

        task = asyncio.create_task(other(), name="reader")
        with tiny.shared().steer(1, VECTOR):
            opened.set()
            await ran.wait()
        await task

    with pytest.raises(CutawayError, match="task 'reader' of thread '"):
        loops.run(main())


def test_an_error_of_the_body_is_not_masked() -> None:
    with pytest.raises(ZeroDivisionError), tiny.shared().steer(1, VECTOR):
        in_thread(read, carried=False)
        raise ZeroDivisionError


def test_an_edit_held_by_a_function_for_with_blocks_acts_in_its_block() -> None:
    @contextlib.contextmanager
    def steering(factor: float) -> Iterator[None]:
        with tiny.shared().steer(1, VECTOR, factor=factor):
            yield

    once = steered(2)
    with steering(2.0):
        assert torch.equal(read(), once)
    with contextlib.ExitStack() as stack:
        stack.enter_context(steering(2.0))
        stack.enter_context(steering(1.0))
        twice = read()
    expected = by_hook(tiny.plain(), PATH, logits_of, lambda value: value + 2 * VECTOR + VECTOR)
    assert torch.equal(twice, expected)
    assert torch.equal(read(), plain())


def test_generators_that_hold_an_edit_each_and_take_turns_are_told() -> None:
    def streams(factor: float) -> Iterator[Tensor]:
        with tiny.shared().steer(1, VECTOR, factor=factor):
            for _ in range(2):
                yield read()

    one, two = streams(1.0), streams(2.0)
    with pytest.raises(CutawayError, match="took turns"):
        for _ in zip(one, two, strict=True):
            pass
    two.close()
    assert torch.equal(read(), plain())
    assert hooks_of(tiny.plain()) == 0


def test_generators_with_an_edited_model_each_take_turns() -> None:
    def streams(factor: float) -> Iterator[Tensor]:
        edited = tiny.shared().edited({"layers.1.layer_output": lambda value: value + factor * VECTOR})
        for _ in range(2):
            yield edited.read(tiny.IDS, "logits")["logits"]

    for one, two in zip(streams(1.0), streams(2.0), strict=True):
        assert torch.equal(one, steered())
        assert torch.equal(two, steered(2))


def test_an_edit_opened_in_the_body_reaches_the_pass_that_waits() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        model.layers[0].layer_output
        with model.steer(1, VECTOR):
            model.layers[2].layer_input
        assert torch.equal(model.logits, steered())
    with model.trace(tiny.IDS):
        model.layers[0].layer_output
        with model.steer(1, VECTOR, positions=-1):
            model.layers[2].layer_input
        logits = model.logits

    def last(value: Tensor) -> Tensor:
        return torch.cat([value[:, :-1], value[:, -1:] + VECTOR], dim=1)

    assert torch.equal(logits, by_hook(tiny.plain(), PATH, logits_of, last))


def test_an_edit_opened_in_a_step_of_a_generation_has_its_positions() -> None:
    model, seen = tiny.shared(), []
    with model.generate(PROMPT, max_new_tokens=4, do_sample=False) as run:
        for step in run:
            if step.index == 2:
                with model.hooks({"layers.1.layer_output": lambda value: value + VECTOR}, positions="new"):
                    seen.append(model.layers[1].layer_output - VECTOR)
            else:
                seen.append(model.layers[1].layer_output)
    ids = run.output[:, :-1]
    with torch.no_grad():
        states = tiny.plain()(ids, output_hidden_states=True).hidden_states[2]
    torch.testing.assert_close(torch.cat(seen[:3], dim=1), states[:, :6], rtol=1e-4, atol=1e-4)


def test_the_same_edits_cannot_be_opened_twice_at_once() -> None:
    edit, expected = tiny.shared().steer(1, VECTOR), steered()
    with edit:
        read()
        with pytest.raises(CutawayError, match="in force already"), edit:
            pass
    with edit:
        assert torch.equal(read(), expected)
