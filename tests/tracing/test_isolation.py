"""The pass and the body share a thread, and neither sees the other's torch settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.phi.modeling_phi import PhiMLP

from cutaway import StandardizedTransformer
from tests import tiny


class Recorder(TorchFunctionMode):
    """Notes which functions run under it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class DispatchRecorder(TorchDispatchMode):
    """Notes which operators run under it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def settings() -> dict[str, Any]:
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
        "device": torch.empty(0).device.type,
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
    }


MODES = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "function mode": Recorder,
    "dispatch mode": DispatchRecorder,
}


@pytest.fixture
def noted() -> tuple[StandardizedTransformer, list[dict[str, Any]]]:
    """A model that notes the settings under which each of its layers runs."""
    hf, seen = tiny.fresh(), []
    for block in hf.model.layers:
        block.register_forward_pre_hook(lambda *_: seen.append(settings()))
    model = StandardizedTransformer(hf, check=False)
    model.read(tiny.IDS, "logits")
    seen.clear()
    return model, seen


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_entered_in_the_body_does_not_last_into_the_pass(mode: str, noted: Any) -> None:
    model, seen = noted
    with model.trace(tiny.IDS):
        model.layers[0].layer_output
        with MODES[mode]():
            inside = settings()
            model.layers[1].mlp.mlp_output
            assert settings() == inside
            model.layers[1].layer_output
            assert settings() == inside
        logits = model.logits
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
    assert torch.equal(logits, tiny.logits_of(tiny.plain()))


@pytest.mark.parametrize("mode", MODES)
def test_the_body_keeps_its_settings_and_the_pass_starts_under_those_at_the_with(mode: str, noted: Any) -> None:
    model, seen = noted
    before = settings()
    with MODES[mode]():
        outside = settings()
        with model.trace(tiny.IDS):
            assert settings() == outside
            model.layers[0].layer_output
            assert settings() == outside
            model.layers[2].self_attn.attention_probabilities
            assert settings() == outside
        assert settings() == outside
    assert settings() == before
    # A trace records no gradients unless asked to, and its tensors count their edits, as they do not in inference mode.
    assert all(noted == {**outside, "grad": False, "inference": False} for noted in seen)


@pytest.mark.parametrize("abandoned", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_the_pass_does_not_last_into_the_body(mode: str, abandoned: bool) -> None:
    class UnderAMode(PhiMLP):
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            with MODES[mode]():
                return super().forward(hidden_states)

    hf = tiny.fresh()
    hf.model.layers[1].mlp.__class__ = UnderAMode
    model = StandardizedTransformer(hf, check=False)
    before = settings()
    with model.trace(tiny.IDS):
        model.layers[1].mlp.fc1.input
        assert settings() == before
        model.layers[1].mlp.fc1.output
        assert settings() == before
        if not abandoned:
            model.logits
    assert settings() == before


def test_modes_left_open_when_a_trace_begins_and_closed_inside_are_put_right() -> None:
    model, expected = tiny.shared(), tiny.logits_of(tiny.plain())
    guard = torch.no_grad()
    guard.__enter__()
    with model.trace(tiny.IDS):
        model.layers[0].layer_output
        guard.__exit__(None, None, None)
        assert torch.is_grad_enabled()
        assert torch.equal(model.logits, expected)
        assert torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_the_body_computes_with_gradients_and_the_pass_without() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        stream = model.layers[0].layer_output
        weight = torch.ones(32, requires_grad=True)
        assert (stream * weight).requires_grad
        assert not model.logits.requires_grad


def test_autocast_of_the_surroundings_holds_in_the_pass_as_in_the_plain_model() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = tiny.logits_of(tiny.plain())
        with tiny.shared().trace(tiny.IDS):
            assert torch.equal(tiny.shared().logits, expected)
    assert expected.dtype == torch.bfloat16


@pytest.mark.parametrize("first", [torch.float16, torch.bfloat16], ids=str)
def test_what_autocast_keeps_of_the_body_is_not_used_in_the_pass(first: torch.dtype) -> None:
    hf, model = tiny.fresh(), StandardizedTransformer(tiny.fresh(), check=False)
    head = model.hf.lm_head
    second = torch.bfloat16 if first == torch.float16 else torch.float16
    with torch.autocast("cpu", second):
        expected = tiny.logits_of(hf)
        with model.trace(tiny.IDS):
            stream = model.final_norm_output
            with torch.autocast("cpu", first):
                mine = head(stream.detach())  # torch keeps the head's weights in this dtype until autocast is left
                assert torch.equal(model.logits, expected)
                assert torch.equal(head(stream.detach()), mine)
    assert mine.dtype == first
    assert expected.dtype == second


def test_a_softmax_of_the_body_is_not_watched_while_the_pass_waits_at_one() -> None:
    model, expected = tiny.shared("P", "eager"), tiny.logits_of(tiny.plain("P", "eager"))
    with model.trace(tiny.IDS):
        for layer in model.layers:
            scores = layer.self_attn.attention_scores
            mine = torch.nn.functional.dropout(torch.softmax(scores, -1), 0.0)
            assert torch.equal(layer.self_attn.attention_probabilities, mine)
            torch.nn.functional.softmax(scores + 1, -1)
        assert torch.equal(model.logits, expected)


@pytest.mark.parametrize("mode", ["device", "inference_mode", "function mode", "dispatch mode", "autocast"])
def test_a_models_first_trace_may_be_under_any_mode(mode: str) -> None:
    model = StandardizedTransformer(tiny.fresh(), check=False)
    with MODES[mode]():
        with model.trace(tiny.IDS):
            first = model.layers[0].layer_output
            model.layers[1].self_attn.attention_probabilities
            with pytest.raises(RuntimeError, match="comes before it"):
                model.layers[0].mlp.mlp_output
            with pytest.raises(RuntimeError, match="comes before it"):
                model.layers[0].layer_output = first + 1
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(tiny.plain()))
