"""Wherever an interrupt comes, nothing is left behind, and what follows is as if it had not come.

`make interrupts` tries many more than are tried here: CUTAWAY_INTERRUPTS says how many of each kind.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Iterator

import greenlet
import pytest
import torch

from cutaway import StandardizedTransformer
from cutaway.tracing import operations, overlays
from cutaway.tracing.interior import AttentionInterior
from tests import tiny
from tests.tracing.injecting import Injection
from tests.tracing.uses import USES, left_by

MANY = int(os.environ.get("CUTAWAY_INTERRUPTS", "36")) // len(USES)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interrupt may come in a `__del__`, where Python drops it."""


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, also where the tests were started with it ignored, as `nohup` and a shell's `&` do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


LOCKS = (AttentionInterior._lock, overlays._lock, operations._lock)


def locks_are_free() -> bool:
    """Whether another thread can have our locks."""
    found: list[bool] = []

    def have() -> None:
        for lock in LOCKS:
            found.append(lock.acquire(timeout=5))
            if found[-1]:
                lock.release()

    thread = threading.Thread(target=have)
    thread.start()
    thread.join()
    return all(found)


class Tried:
    """A model before and after interrupts."""

    def __init__(self, name: str) -> None:
        self.hf = tiny.fresh()
        self.model = StandardizedTransformer(self.hf, check=False)
        self.use = USES[name]
        self.use(self.model)
        self.use(self.model)
        gc.collect()
        self.before = left_by(self.hf)
        self.plain = tiny.logits_of(self.hf)
        self.read = self.model.read(tiny.IDS, "logits", "attention_scores")

    def nothing_is_left(self, where: str) -> None:
        """Of a block that was kept from being left, only once it is let go of."""
        if left_by(self.hf) != self.before:
            gc.collect()
        after = left_by(self.hf)
        assert [key for key in {**after, **self.before} if after.get(key) != self.before.get(key)] == [], where
        assert locks_are_free(), where
        assert torch.equal(tiny.logits_of(self.hf), self.plain), where
        again = self.model.read(tiny.IDS, "logits", "attention_scores")
        assert all(torch.equal(again[path], value) for path, value in self.read.items()), where


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "instructions"])
@pytest.mark.parametrize("name", USES)
def test_an_interrupt_at_any_point_of_ours_leaves_nothing(name: str, opcodes: bool) -> None:
    tried = Tried(name)
    with Injection(opcodes=opcodes) as counted:
        tried.use(tried.model)
    points = range(1, counted.count + 1)
    seed = random.Random(f"{name}{opcodes}{MANY}")
    for due in seed.sample(points, min(len(points), 2 * MANY)):
        injection = Injection(due, opcodes=opcodes)
        try:
            with injection:
                tried.use(tried.model)
        except KeyboardInterrupt:
            pass
        tried.nothing_is_left(f"{due} of {counted.count}: {injection.where}")


@pytest.mark.parametrize("name", USES)
def test_a_signal_at_any_time_leaves_nothing(name: str) -> None:
    tried, seed, came = Tried(name), random.Random(name), 0
    for _ in range(2 * MANY):
        timer = threading.Timer(seed.random() * 0.03, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while timer.is_alive():
                tried.use(tried.model)
            timer.join()
        except KeyboardInterrupt:
            came += 1
            timer.join()
        tried.nothing_is_left("a signal")
    assert came > MANY  # Python drops one that comes while a thing is let go of


@pytest.mark.parametrize("error", [greenlet.GreenletExit("mine"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_a_users_hook_raises_to_stop_comes_out_as_it_is(error: BaseException) -> None:
    def stop(*_: object) -> None:
        raise error

    tried = Tried("a_reading")
    for call in (lambda: tried.model.read(tiny.IDS, "logits"), lambda: tried.use(tried.model), _traced(tried.model)):
        handle = tried.hf.model.layers[1].mlp.register_forward_hook(stop)
        try:
            with pytest.raises(type(error)) as caught:
                call()
        finally:
            handle.remove()
        assert caught.value is error
        tried.nothing_is_left("a hook's own")


def _traced(model: StandardizedTransformer) -> object:
    def call() -> None:
        with model.trace(tiny.IDS):
            model.layers[0].layer_output
            model.logits

    return call
