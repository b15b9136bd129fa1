"""Passes whose lifetimes cross, in threads and generators, leave the model as it was and each other alone."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.models.phi import modeling_phi

from cutaway import StandardizedTransformer
from tests import tiny


def streams(model: StandardizedTransformer, ids: torch.Tensor) -> Iterator[torch.Tensor]:
    with model.trace(ids):
        for layer in model.layers:
            yield layer.layer_input
            layer.self_attn.attention_scores
        yield model.logits


def marks(hf: torch.nn.Module) -> list[tuple[str, int]]:
    return [
        (name, len(vars(module)) + len(module._forward_hooks) + len(module._forward_pre_hooks))
        for name, module in hf.named_modules()
    ]


@pytest.mark.parametrize("how", ["close", "drop"])
def test_a_generator_left_early_takes_its_pass_with_it(how: str) -> None:
    hf, model = tiny.plain(), tiny.shared()
    before = marks(hf)
    generator = streams(model, tiny.IDS)
    next(generator), next(generator)
    if how == "close":
        generator.close()
    del generator
    gc.collect()
    assert marks(hf) == before
    assert hf.config._attn_implementation == "sdpa"
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(hf))


def test_threads_whose_traces_end_in_the_order_in_which_they_began() -> None:
    hf, model = tiny.plain(), tiny.shared()
    before, errors = marks(hf), []
    began, ended = threading.Event(), threading.Event()

    def second() -> None:
        try:
            with model.trace(tiny.IDS):
                model.layers[1].layer_input
                model.layers[1].self_attn.attention_scores
                began.set()
                assert ended.wait(30)
        except BaseException as error:
            errors.append(error)
            began.set()

    thread = threading.Thread(target=second)
    with model.trace(tiny.IDS):
        model.layers[1].layer_input
        model.layers[1].self_attn.attention_scores
        thread.start()
        assert began.wait(30)
    assert torch.equal(tiny.logits_of(hf), tiny.logits_of(tiny.fresh()))
    ended.set()
    thread.join()
    assert not errors
    assert marks(hf) == before
    assert hf.config._attn_implementation == "sdpa"


def test_a_name_read_from_the_config_leads_to_the_real_attention_once_the_last_trace_is_over() -> None:
    """A forward of another thread may have read the name a moment before, and look it up a moment after."""
    hf, model = tiny.plain(), tiny.shared()
    functions, masks = modeling_phi.ALL_ATTENTION_FUNCTIONS, AttentionMaskInterface._global_mapping
    with model.editing({"layers.0.self_attn.attention_queries": lambda value: None}):
        name = hf.config._attn_implementation
        assert functions.get_interface(name, None) is not functions["sdpa"]
        assert masks[name] is masks["sdpa"]
    assert functions.get_interface(name, None) is functions["sdpa"]
    assert masks[name] is masks["sdpa"]
    assert name not in sorted(functions) or name == "sdpa"


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copy_made_while_a_trace_waits_is_a_plain_model(again, attention: str) -> None:
    hf, model = tiny.plain("P", attention), tiny.shared("P", attention)
    with model.hooks({"layers.0.self_attn.attention_queries": lambda value: None}), model.trace(tiny.IDS):
        model.layers[1].layer_input
        config = again(hf.config)
    assert type(config._attn_implementation) is str
    assert config._attn_implementation == attention
    with model.trace(tiny.IDS):
        model.layers[1].self_attn.attention_scores
        twin = copy.deepcopy(hf)
        model.logits
    assert twin.config._attn_implementation == attention


def test_plain_forwards_run_while_traces_come_and_go() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected, stop, errors = tiny.logits_of(hf), threading.Event(), []

    def plain() -> None:
        try:
            while not stop.is_set():
                assert torch.equal(tiny.logits_of(hf), expected)
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=plain) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(100):
            with model.trace(tiny.IDS):
                model.layers[0].self_attn.attention_queries
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not errors
    assert not [name for name in AttentionInterface._global_mapping if "cutaway" in name]
