"""After an exception on either side, hooks, attributes, config and registries are exactly as before."""

from __future__ import annotations

import gc
import os
import signal
import threading
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PhiForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.phi import modeling_phi

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, ShapeError
from tests import raw, tiny


class Trouble(Exception):
    """Raised by these tests."""


def state_of(hf: PhiForCausalLM) -> dict[str, Any]:
    """All that tracing could leave behind on a model, in transformers and in torch."""
    state: dict[str, Any] = {
        "config": hf.config.to_dict(),
        "attention": hf.config._attn_implementation,
        "functions": dict(AttentionInterface._global_mapping),
        "masks": dict(AttentionMaskInterface._global_mapping),
        "local": dict(modeling_phi.ALL_ATTENTION_FUNCTIONS._local_mapping),
        "eager": (modeling_phi.eager_attention_forward, modeling_llama.eager_attention_forward),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "class": type(hf),
        "forward": PhiForCausalLM.forward,
        "tensor": sorted(vars(torch.Tensor)),
    }
    for name, module in hf.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, dict):
                state[f"{name}.{key}"] = {k: id(v) for k, v in value.items()}
            else:
                state[f"{name}.{key}"] = id(value) if not isinstance(value, (int, float, str)) else value
    return state


def in_the_body(model: StandardizedTransformer, error: BaseException) -> None:
    with model.trace(tiny.IDS):
        model.layers[0].layer_input
        model.layers[1].self_attn.attention_scores += 1
        raise error


def before_anything_ran(model: StandardizedTransformer, error: BaseException) -> None:
    with model.trace(tiny.IDS):
        raise error


def in_a_nested_trace(model: StandardizedTransformer, error: BaseException) -> None:
    with model.trace(tiny.IDS):
        model.layers[0].self_attn.attention_queries
        with model.trace(tiny.IDS):
            model.layers[1].self_attn.attention_head_outputs
            model.layers[2].output
            raise error


def in_the_model(model: StandardizedTransformer, error: BaseException) -> None:
    def fail(*_: Any) -> None:
        raise error

    handle = model.hf.model.layers[2].mlp.register_forward_hook(fail)
    try:
        with model.trace(tiny.IDS):
            model.layers[1].self_attn.attention_probabilities
            model.layers[2].mlp.fc1.output
            model.logits
    finally:
        handle.remove()


def in_a_function(model: StandardizedTransformer, error: BaseException) -> None:
    def fail(_value: torch.Tensor) -> None:
        raise error

    with model.hooks({"layers.1.self_attn.attention_scores": fail, "logits": lambda value: value}):
        model.read(tiny.IDS, "logits")


def in_a_plain_call_under_hooks(model: StandardizedTransformer, error: BaseException) -> None:
    def fail(_value: torch.Tensor) -> None:
        raise error

    with model.hooks({"layers.1.mlp.fc2.output": fail}):
        model.hf(tiny.IDS)


def in_read(model: StandardizedTransformer, error: BaseException) -> None:
    def fail(*_: Any) -> None:
        raise error

    handle = model.hf.model.layers[1].self_attn.dense.register_forward_pre_hook(fail)
    try:
        model.read(tiny.IDS, "*")
    finally:
        handle.remove()


PLACES = [
    in_the_body,
    before_anything_ran,
    in_a_nested_trace,
    in_the_model,
    in_a_function,
    in_a_plain_call_under_hooks,
    in_read,
]


@pytest.mark.parametrize("error", [Trouble("here"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("place", PLACES)
def test_an_exception_leaves_everything_as_before(place: Callable[..., None], attention: str, error: Any) -> None:
    hf, model = tiny.plain("P", attention), tiny.shared("P", attention)
    model.read(tiny.IDS, "logits")
    expected, before = tiny.logits_of(hf), state_of(hf)
    with pytest.raises(type(error)) as caught:
        place(model, error)
    assert caught.value is error
    assert state_of(hf) == before
    assert torch.equal(tiny.logits_of(hf), expected)


def test_an_interrupt_from_the_keyboard_in_the_middle_of_a_pass() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    model.read(tiny.IDS, "logits")
    handle = hf.model.layers[1].mlp.register_forward_hook(lambda *_: os.kill(os.getpid(), signal.SIGINT))
    before = state_of(hf)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored under nohup, and behind `&`
    try:
        with pytest.raises(KeyboardInterrupt), model.trace(tiny.IDS):
            model.layers[0].self_attn.attention_probabilities
            model.logits
    finally:
        signal.signal(signal.SIGINT, handler)
    assert state_of(hf) == before
    handle.remove()
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(tiny.plain()))


def test_a_bad_edit_surfaces_at_the_waiting_line_with_the_models_traceback_below() -> None:
    hf, model = tiny.plain(), tiny.shared()
    before = state_of(hf)
    with pytest.raises(ShapeError, match=r"it was given \[3, 6, 5\]"), model.trace(tiny.IDS):
        model.layers[1].mlp.fc1.output = torch.zeros(3, 6, 5)
    with pytest.raises(RuntimeError) as caught, model.trace(tiny.IDS):
        call = model.layers[1].self_attn.inputs
        model.layers[1].self_attn.inputs = (call.args, {**call.kwargs, "hidden_states": torch.zeros(3, 6, 5)})
        model.logits  # asked here
    lines = "".join(traceback.format_exception(caught.value))
    assert "model.logits  # asked here" in lines
    assert lines.index("asked here") < lines.index("modeling_phi.py")
    assert state_of(hf) == before


def test_a_trace_goes_on_after_a_refused_request() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.trace(tiny.IDS):
        model.layers[1].layer_output
        for wrong in (lambda: model.layers[0].mlp.mlp_output, lambda: model.no_such, lambda: model.layers[1].layer_mid):
            with pytest.raises(CutawayError):
                wrong()
        with pytest.raises(ShapeError):
            model.layers[1].layer_output = torch.zeros(1)
        assert torch.equal(model.logits, tiny.logits_of(hf))


def test_a_users_own_hooks_stay_and_fire_after_any_trace() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    hf.model.layers[1].register_forward_hook(lambda _m, _a, out: out + 1)
    fired: list[str] = []
    hf.model.layers[1].register_forward_pre_hook(lambda *_: fired.append("pre"))
    hf.model.layers[1].self_attn.register_forward_hook(lambda *_: fired.append("post"), always_call=True)
    before, expected = state_of(hf), tiny.logits_of(hf)
    assert torch.equal(
        expected, raw.edited_logits(tiny.plain(), tiny.as_inputs(tiny.IDS), "layer_output", 1, lambda value: value + 1)
    )
    with model.trace(tiny.IDS):
        model.layers[1].layer_output
    with pytest.raises(Trouble):
        in_the_body(model, Trouble())
    model.read(tiny.IDS)
    fired.clear()
    assert torch.equal(tiny.logits_of(hf), expected)
    assert fired == ["pre", "post"]
    assert {**state_of(hf), "tensor": 0} == {**before, "tensor": 0}


def test_leaving_an_inner_block_leaves_the_outer_hooks_and_the_users_own() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    hf.model.layers[0].register_forward_hook(lambda _m, _a, out: out + 1)
    own = tiny.logits_of(hf)
    with model.hooks({"layers.1.layer_output": lambda value: value + 1}):
        with model.hooks({"layers.2.layer_output": lambda value: value * 2}), model.trace(tiny.IDS):
            model.layers[2].mlp.mlp_output
            inner = model.logits
        both = tiny.logits_of(hf)
        with model.trace(tiny.IDS):
            assert torch.equal(model.logits, both)
    handle = hf.model.layers[1].register_forward_hook(lambda _m, _a, out: out + 1)
    assert torch.equal(both, tiny.logits_of(hf))
    handle.remove()
    assert torch.equal(tiny.logits_of(hf), own)
    assert not torch.equal(inner, both)
    assert not torch.equal(both, own)


def test_a_users_hook_may_belong_to_something_that_cannot_be_copied() -> None:
    class Logger:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.calls = 0

        def __call__(self, *_: Any) -> None:
            self.calls += 1

    hf, logger = tiny.fresh(), Logger()
    hf.model.layers[0].register_forward_hook(logger)
    model = StandardizedTransformer(hf, check=False)
    model.read(tiny.IDS, "logits")
    assert logger.calls == 1


def test_a_thousand_failing_traces_leave_memory_and_hooks_flat() -> None:
    hf, model = tiny.plain(), tiny.shared()
    error = Trouble()

    def fail(times: int) -> None:
        for i in range(times):
            with pytest.raises(Trouble):
                PLACES[i % len(PLACES)](model, error.with_traceback(None))
            error.__context__ = None

    fail(100)
    before = state_of(hf)
    tracemalloc.start()
    try:
        fail(50)
        gc.collect()
        settled = tracemalloc.get_traced_memory()[0]
        fail(850)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - settled
    finally:
        tracemalloc.stop()
    assert grown < 100_000
    assert state_of(hf) == before
