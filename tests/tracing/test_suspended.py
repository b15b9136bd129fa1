"""Traces that generators hold, suspended inside their blocks: each is answered by its own pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from cutaway.errors import NoTraceError
from tests import loops, tiny

ONE, OTHER = tiny.IDS, tiny.IDS + 1


def streams_of(ids: Tensor) -> list[Tensor]:
    """By plain transformers, of the same kind of model."""
    with torch.no_grad():
        hidden = tiny.plain()(**tiny.as_inputs(ids), output_hidden_states=True).hidden_states
    return list(hidden[1:-1])


def streams(model: StandardizedTransformer, ids: Tensor) -> Iterator[Tensor]:
    with model.trace(ids):
        for layer in list(model.layers)[:-1]:
            yield layer.layer_output


def test_two_generators_in_turns() -> None:
    model = tiny.shared()
    pairs = list(zip(streams(model, ONE), streams(model, OTHER), strict=True))
    for (one, other), expected, elsewhere in zip(pairs, streams_of(ONE), streams_of(OTHER), strict=True):
        assert torch.equal(one, expected)
        assert torch.equal(other, elsewhere)


def test_three_generators_that_end_in_another_order_than_they_began() -> None:
    model = tiny.shared()
    held = [streams(model, ONE + i) for i in range(3)]
    found = [[next(generator)] for generator in held]
    for which in (1, 2, 0):
        found[which] += list(held[which])
    for i in range(3):
        assert all(torch.equal(*pair) for pair in zip(found[i], streams_of(ONE + i), strict=True))


def test_edits_of_generators_reach_their_own_pass() -> None:
    model = tiny.shared()

    def edited(ids: Tensor, by: int) -> Iterator[Tensor]:
        with model.trace(ids):
            model.layers[0].mlp.mlp_output += by
            yield model.layers[0].layer_output
            yield model.logits

    def alone(ids: Tensor, by: int) -> Tensor:
        hf = tiny.plain()
        handle = hf.model.layers[0].mlp.register_forward_hook(lambda *call: call[-1] + by)
        try:
            return tiny.logits_of(hf, ids)
        finally:
            handle.remove()

    found = list(zip(edited(ONE, 1), edited(OTHER, 2), strict=True))[-1]
    assert torch.equal(found[0], alone(ONE, 1))
    assert torch.equal(found[1], alone(OTHER, 2))


def test_generations_in_turns() -> None:
    model = tiny.shared()

    def steps(ids: Tensor) -> Iterator[tuple[int, Tensor]]:
        with model.generate(ids, max_new_tokens=3, do_sample=False) as run:
            for step in run:
                yield step.index, model.logits[:, -1].argmax(-1)
        yield -1, run.output

    expected = [tiny.plain().generate(ids, max_new_tokens=3, do_sample=False) for ids in (ONE, OTHER)]
    *turns, last = list(zip(steps(ONE), steps(OTHER), strict=True))
    for i in range(2):
        assert torch.equal(last[i][1], expected[i])
        assert torch.equal(torch.stack([turn[i][1] for turn in turns], 1), expected[i][:, ONE.shape[1] :])


def test_helpers_that_are_called_in_the_block_ask_for_its_pass() -> None:
    model = tiny.shared()

    def ask(layer: int) -> Tensor:
        return next(model.layers[layer].layer_output for _ in range(1))

    def helped(ids: Tensor) -> Iterator[Tensor]:
        with model.trace(ids):
            for layer in range(tiny.LAYERS - 1):
                yield ask(layer)

    for pair in zip(helped(ONE), helped(OTHER), streams_of(ONE), streams_of(OTHER), strict=True):
        assert torch.equal(pair[0], pair[2])
        assert torch.equal(pair[1], pair[3])


def test_a_block_beside_a_suspended_generator() -> None:
    model = tiny.shared()
    expected, elsewhere = streams_of(ONE), streams_of(OTHER)
    suspended = streams(model, OTHER)
    assert torch.equal(next(suspended), elsewhere[0])
    with model.trace(ONE):
        assert torch.equal(model.layers[0].layer_output, expected[0])
        assert torch.equal(next(suspended), elsewhere[1])
        assert torch.equal(model.layers[1].layer_output, expected[1])
    suspended.close()
    with model.trace(ONE):
        second = streams(model, OTHER)
        assert torch.equal(next(second), elsewhere[0])  # opened later, and still not the block of this line
        assert torch.equal(model.layers[1].layer_output, expected[1])
        second.close()


def test_a_line_in_the_block_of_neither_is_refused() -> None:
    model = tiny.shared()
    one, other = streams(model, ONE), streams(model, OTHER)
    next(one), next(other)
    with pytest.raises(NoTraceError, match=r"2 traces .* suspended .`streams`, `streams`.* in none of these blocks"):
        model.layers[1].layer_output
    other.close()
    one.close()
    with pytest.raises(NoTraceError, match=r"inside `with model\.trace"):
        model.layers[1].layer_output


@contextmanager
def by_a_context_manager(model: StandardizedTransformer, ids: Tensor) -> Iterator[Any]:
    with model.trace(ids) as trace:
        yield trace


@contextmanager
def by_one_inside_another(model: StandardizedTransformer, ids: Tensor) -> Iterator[Any]:
    with by_a_context_manager(model, ids) as trace:
        yield trace


class ByAClass:
    def __init__(self, model: StandardizedTransformer, ids: Tensor) -> None:
        self.trace = model.trace(ids)

    def __enter__(self) -> None:
        self.trace.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.trace.__exit__(*error)


@contextmanager
def by_an_exit_stack(model: StandardizedTransformer, ids: Tensor) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(model.trace(ids))
        yield


WAYS = [by_a_context_manager, by_one_inside_another, ByAClass, by_an_exit_stack]


@pytest.mark.parametrize("inner", WAYS)
@pytest.mark.parametrize("outer", WAYS)
def test_traces_that_helpers_open_nest_as_others_do(outer: Any, inner: Any) -> None:
    model = tiny.shared()
    with outer(model, ONE):
        assert torch.equal(model.layers[0].layer_output, streams_of(ONE)[0])
        with inner(model, OTHER):
            assert torch.equal(model.layers[0].layer_output, streams_of(OTHER)[0])
        assert torch.equal(model.layers[1].layer_output, streams_of(ONE)[1])
        with model.trace(OTHER):
            assert torch.equal(model.layers[1].layer_output, streams_of(OTHER)[1])
            with inner(model, ONE):
                assert torch.equal(model.layers[0].layer_output, streams_of(ONE)[0])


def test_async_generators_in_turns_in_one_task() -> None:
    model = tiny.shared()

    async def asynchronous(ids: Tensor) -> AsyncIterator[Tensor]:
        with model.trace(ids):
            for layer in list(model.layers)[:-1]:
                await asyncio.sleep(0)
                yield layer.layer_output

    @asynccontextmanager
    async def held(ids: Tensor) -> AsyncIterator[None]:
        with model.trace(ids):
            yield

    async def turns() -> list[tuple[Tensor, Tensor]]:
        one, other = asynchronous(ONE), asynchronous(OTHER)
        found = [(await anext(one), await anext(other)) for _ in range(tiny.LAYERS - 1)]
        await one.aclose()
        await other.aclose()
        async with held(ONE), held(OTHER):
            found.append((streams_of(ONE)[0], model.layers[0].layer_output))
        return found

    *found, (_, last) = loops.run(turns())
    for (one, other), expected, elsewhere in zip(found, streams_of(ONE), streams_of(OTHER), strict=True):
        assert torch.equal(one, expected)
        assert torch.equal(other, elsewhere)
    assert torch.equal(last, streams_of(OTHER)[0])


def test_a_generator_that_is_dropped_closes_its_trace() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    dropped = streams(model, OTHER)
    next(dropped)
    del dropped
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in hf.modules())
    with model.trace(ONE):
        assert model.layers[0].layer_output.shape[0] == len(ONE)
