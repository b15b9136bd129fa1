"""A caller's cache is advanced as a plain call of the model advances it, bit for bit, or is as it was before."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import Cache, DynamicSlidingWindowLayer, StaticSlidingWindowLayer

from tests import tiny
from tests.families import models

PROMPT = torch.tensor([[5, 9, 33, 2], [7, 7, 1, 40], [50, 4, 12, 29]])
NEXT = torch.tensor([[61, 17], [8, 3], [6, 11]])


def both(kind: str) -> tuple[Any, Any]:
    return (tiny.plain(), tiny.shared()) if kind == "phi" else (models.plain(kind), models.wrapped(kind))


CACHES: dict[str, Callable[[Any], Any]] = {
    "dynamic": lambda hf: DynamicCache(config=hf.config),
    "static": lambda hf: StaticCache(config=hf.config, max_cache_len=10),
    "hybrid": lambda hf: Cache(
        [
            DynamicSlidingWindowLayer(12) if i == 1 else copy.copy(layer)
            for i, layer in enumerate(DynamicCache(config=hf.config).layers)
        ]
    ),
    "static hybrid": lambda hf: Cache(
        [
            StaticSlidingWindowLayer(10, 10) if i == 1 else layer
            for i, layer in enumerate(StaticCache(config=hf.config, max_cache_len=10).layers)
        ]
    ),
}
ALL_CACHES = pytest.mark.parametrize("cache", CACHES)


def filled(hf: Any, name: str) -> Any:
    cache = CACHES[name](hf)
    with torch.no_grad():
        hf(PROMPT, cache=cache)
    return cache


def state(thing: Any) -> Any:
    """Everything that a cache holds, copied."""
    if isinstance(thing, Tensor):
        return thing.detach().clone()
    if isinstance(thing, (list, tuple)):
        return [state(item) for item in thing]
    if hasattr(thing, "__dict__") and type(thing).__module__.startswith("transformers.cache"):
        return {"class": type(thing).__name__, **{name: state(held) for name, held in vars(thing).items()}}
    return thing


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, Tensor):
        assert isinstance(other, Tensor)
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert one == other


def advanced(hf: Any, name: str) -> Any:
    cache = filled(hf, name)
    with torch.no_grad():
        logits = hf(NEXT, cache=cache).logits
    return state(cache), logits


USES: dict[str, Callable[[Any, Any], None]] = {}


def use(function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    USES[function.__name__] = function
    return function


@use
def reads_the_logits(model: Any, cache: Any) -> None:
    with model.trace(NEXT, cache=cache):
        model.logits


@use
def leaves_early(model: Any, cache: Any) -> None:
    with model.trace(NEXT, cache=cache):
        model.layers[1].layer_output


@use
def asks_nothing(model: Any, cache: Any) -> None:
    with model.trace(NEXT, cache=cache):
        pass


@use
def reads_at_once(model: Any, cache: Any) -> None:
    model.read(NEXT, "layers.0.layer_output", cache=cache)


@use
def edits_keys_in_place(model: Any, cache: Any) -> None:
    with model.trace(NEXT, cache=cache):
        model.layers[2].self_attn.attention_keys[:] = 9
        model.layers[2].self_attn.attention_values[:] = 9


@use
def edits_keys_by_a_function(model: Any, cache: Any) -> None:
    def in_place(value: Tensor) -> None:
        value[:] = 9

    with model.hooks({"layers.2.self_attn.attention_keys": in_place}):
        model.read(NEXT, "logits", cache=cache)


@use
def edits_what_it_has_read(model: Any, cache: Any) -> None:
    for value in model.read(NEXT, "attention_keys", "attention_values", cache=cache).values():
        value[:] = 9


@use
def has_edits_of_its_own(model: Any, cache: Any) -> None:
    edited = model.edited({"layers.2.self_attn.attention_values": lambda value: value + 1})
    with edited.trace(NEXT, cache=cache):
        edited.layers[2].layer_input


@ALL_CACHES
@pytest.mark.parametrize("way", USES)
def test_it_is_advanced_as_a_plain_call_advances_it(cache: str, way: str) -> None:
    hf, model = both("phi")
    expected, _ = advanced(hf, cache)
    given = filled(hf, cache)
    USES[way](model, given)
    assert_same(state(given), expected)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "neox"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_in_every_family(kind: str, cache: str) -> None:
    hf, model = both(kind)
    expected, logits = advanced(hf, cache)
    for way in (leaves_early, edits_keys_in_place, reads_at_once):
        given = filled(hf, cache)
        way(model, given)
        assert_same(state(given), expected)
    given = filled(hf, cache)
    assert torch.equal(model.read(NEXT, "logits", cache=given)["logits"], logits)


@pytest.mark.parametrize("way", ["in place", "assigned"])
def test_an_edit_of_keys_acts_in_the_pass_all_the_same(way: str) -> None:
    hf, model = both("phi")
    found = []
    for edited in (True, False):
        with model.trace(NEXT, cache=filled(hf, "dynamic")):
            attention = model.layers[1].self_attn
            if edited and way == "in place":
                attention.attention_keys[:] *= 2
            elif edited:
                attention.attention_keys = attention.attention_keys * 2
            found.append(model.logits)
    assert (found[0] - found[1]).abs().max() > 1e-3


@pytest.mark.parametrize("first", [True, False], ids=["empty", "filled"])
@ALL_CACHES
def test_an_exception_in_the_body_puts_it_back(cache: str, first: bool) -> None:
    hf, model = both("phi")
    given = CACHES[cache](hf) if first else filled(hf, cache)
    before = state(given)
    layers = [id(layer) for layer in given.layers]
    for last in ("layers.0.layer_output", "logits"):
        with pytest.raises(ZeroDivisionError), model.trace(PROMPT if first else NEXT, cache=given):
            value = model.logits if last == "logits" else model.layers[0].layer_output
            value[:] = 1 / 0
        assert_same(state(given), before)
        assert [id(layer) for layer in given.layers] == layers
    with torch.no_grad():
        after = hf(PROMPT if first else NEXT, cache=given).logits
        fresh = CACHES[cache](hf) if first else filled(hf, cache)
        assert torch.equal(after, hf(PROMPT if first else NEXT, cache=fresh).logits)


def stop(_value: Tensor) -> None:
    raise ZeroDivisionError


@ALL_CACHES
@pytest.mark.parametrize("way", ["read", "trace", "grad", "generate"])
def test_an_exception_in_the_pass_puts_it_back(cache: str, way: str) -> None:
    hf, model = both("phi")
    given = filled(hf, cache)
    before = state(given)
    edited = model.edited({"layers.2.mlp.mlp_output": stop})
    with pytest.raises(ZeroDivisionError):
        if way == "read":
            edited.read(NEXT, "layers.0.layer_output", cache=given)
        elif way == "generate":
            with edited.generate(torch.cat([PROMPT, NEXT], dim=1), cache=given, max_new_tokens=2):
                pass
        else:
            with edited.trace(NEXT, cache=given, grad=way == "grad"):
                edited.layers[0].layer_output
    assert_same(state(given), before)
    assert not any(layer.keys.requires_grad for layer in given.layers)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_generation_advances_it_as_plain_generate_does(cache: str) -> None:
    hf, model = both("phi")
    ids = torch.cat([PROMPT, NEXT], dim=1)
    expected = filled(hf, cache)
    plain = hf.generate(ids, attention_mask=torch.ones_like(ids), cache=expected, max_new_tokens=3, do_sample=False)
    given = filled(hf, cache)
    with model.generate(ids, cache=given, max_new_tokens=3, do_sample=False) as run:
        for _ in run:
            model.layers[2].self_attn.attention_keys  # read, and left alone
    assert torch.equal(run.output, plain)
    assert_same(state(given), state(expected))
    given = filled(hf, cache)
    before = state(given)
    with pytest.raises(ZeroDivisionError), model.generate(ids, cache=given, max_new_tokens=3, do_sample=False) as run:
        for step in run:
            if step.index == 1:
                raise ZeroDivisionError
    assert_same(state(given), before)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_with_gradients_it_is_advanced_too(cache: str) -> None:
    hf, model = both("phi")
    expected, _ = advanced(hf, cache)
    given = filled(hf, cache)
    with model.trace(NEXT, cache=given, grad=True):
        model.layers[2].self_attn.attention_keys[:] = 9
    assert_same(state(given), expected)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_one_that_was_filled_under_inference_mode_serves_too(cache: str) -> None:
    hf, model = both("phi")
    expected, _ = advanced(hf, cache)
    with torch.inference_mode():
        given = filled(hf, cache)
        leaves_early(model, given)
    assert_same(state(given), expected)
    with torch.inference_mode():
        given = filled(hf, cache)
        before = state(given)
        with pytest.raises(ZeroDivisionError), model.trace(NEXT, cache=given):
            model.layers[1].self_attn.attention_keys[:] = 1 / 0
    assert_same(state(given), before)


def test_what_was_read_does_not_change_when_the_cache_goes_on() -> None:
    hf, model = both("phi")
    given = filled(hf, "static")
    keys = model.read(NEXT, "attention_keys", cache=given)
    before = {path: value.clone() for path, value in keys.items()}
    with model.trace(NEXT, cache=given):
        held = model.layers[1].self_attn.attention_values
        kept = held.clone()
    with torch.no_grad():
        hf(NEXT, cache=given)
    assert all(torch.equal(keys[path], value) for path, value in before.items())
    assert torch.equal(held, kept)


def test_a_callers_embeddings_are_left_alone() -> None:
    from cutaway.passes.trace import Trace

    hf, model = both("llama")
    embeddings = hf.get_input_embeddings()(PROMPT).detach()
    before = embeddings.clone()
    with Trace(model._subject, {"inputs_embeds": embeddings}):
        model.layers[0].layer_input[:] = 0
        model.logits
    assert torch.equal(embeddings, before)
    positions = torch.arange(4)[None]
    with model.trace(PROMPT, position_ids=positions):
        model.inputs.kwargs["position_ids"][:] = 3
        model.logits
    assert torch.equal(positions, torch.arange(4)[None])
