"""`host.skip`: a module is passed over, and its input or a value of the user's stands for its result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import DeviceError, DtypeError, LateEditError, NoTraceError, OrderError, ShapeError
from tests import tiny
from tests.generation.test_steps import both, hooks_of

KINDS = pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
VALUE = torch.randn(3, 6, 32, generator=torch.Generator().manual_seed(0))


def without(hf: Any, module: Any, value: Tensor | None, run: Any) -> Any:
    """What the plain model gives where a module's `forward` is exchanged for one that returns a value."""

    def instead(*args: Any, **kwargs: Any) -> Any:
        output = (args[0] if args else kwargs["hidden_states"]) if value is None else value
        return (output, None) if returns_two else output

    returns_two = "Attention" in type(module).__name__
    module.forward = instead
    try:
        with torch.no_grad():
            return run(hf)
    finally:
        del module.forward


def logits_of(hf: Any) -> Tensor:
    return hf(tiny.IDS, attention_mask=torch.ones_like(tiny.IDS), use_cache=False).logits


def host_of(model: Any, name: str) -> Any:
    return model.layers[1] if name == "layer" else getattr(model.layers[1], name)


@KINDS
@pytest.mark.parametrize("value", [None, VALUE], ids=["its input", "a value"])
@pytest.mark.parametrize("name", ["layer", "self_attn", "mlp", "input_layernorm"])
def test_a_module_passed_over_is_the_model_without_it(kind: str, name: str, value: Tensor | None) -> None:
    hf, model = both(kind)
    module = hf.get_submodule(host_of(model, name)._module_path)
    expected, plain = without(hf, module, value, logits_of), logits_of(hf)
    with model.trace(tiny.IDS, use_cache=False):
        host_of(model, name).skip(value)
        logits = model.logits
    assert torch.equal(logits, expected)
    assert not torch.equal(logits, plain)
    assert "forward" not in vars(module)
    assert torch.equal(logits_of(model.hf), logits_of(hf))


@KINDS
def test_the_values_of_what_is_passed_over_are_what_stands_for_it(kind: str) -> None:
    _, model = both(kind)
    with model.trace(tiny.IDS):
        model.layers[0].self_attn.skip(VALUE)
        assert torch.equal(model.layers[0].self_attn.attention_output, VALUE)
        stream = model.layers[1].layer_input
        model.layers[1].skip()
        assert torch.equal(model.layers[1].layer_output, stream)
        assert isinstance(model.layers[1].layer_output, Tensor)
        model.layers[2].skip(2 * VALUE)
        assert torch.equal(model.layers[2].layer_output, 2 * VALUE)


def test_what_stands_for_it_may_be_edited() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected = without(hf, hf.model.layers[1].mlp, VALUE + 1, logits_of)
    with model.trace(tiny.IDS):
        model.layers[1].mlp.skip(VALUE)
        model.layers[1].mlp.mlp_output = model.layers[1].mlp.mlp_output + 1
        assert torch.equal(model.logits, expected)


def test_nothing_inside_runs() -> None:
    hf, model = tiny.plain(), tiny.shared()
    ran: list[int] = []
    handle = hf.model.layers[1].mlp.fc1.register_forward_hook(lambda *_: ran.append(1))
    with model.trace(tiny.IDS):
        model.layers[1].skip()
        model.logits
    handle.remove()
    assert not ran
    with pytest.raises(OrderError, match="mlp_activation"), model.trace(tiny.IDS):
        model.layers[1].mlp.skip()
        model.layers[1].mlp.mlp_activation


def test_native_modules_are_passed_over_too() -> None:
    hf, model = tiny.plain(), tiny.shared()
    neurons = torch.randn(3, 6, 128, generator=torch.Generator().manual_seed(1))
    expected = without(hf, hf.model.layers[1].mlp.fc1, neurons, logits_of)
    with model.trace(tiny.IDS):
        model.layers[1].mlp.fc1.skip(neurons)
        assert torch.equal(model.logits, expected)
    with pytest.raises(ShapeError, match=r"\[3, 6, 128\]"), model.trace(tiny.IDS):
        model.layers[1].mlp.fc1.skip()


def test_it_counts_once_and_for_its_pass_alone() -> None:
    hf, model = tiny.plain(), tiny.shared()
    skipped = without(hf, hf.model.layers[1].mlp, None, logits_of)
    with model.trace(tiny.IDS):
        model.layers[1].mlp.skip()
        assert torch.equal(logits_of(hf), tiny.logits_of(hf))
        with model.trace(tiny.IDS):
            assert torch.equal(model.logits, tiny.logits_of(hf))
        assert torch.equal(model.logits, skipped)
    with model.trace(tiny.IDS):
        assert torch.equal(model.logits, tiny.logits_of(hf))


@pytest.mark.parametrize("use_cache", [True, False])
def test_skipped_in_every_step_of_a_generation(use_cache: bool) -> None:
    hf, model = tiny.plain(), tiny.shared()
    ids = torch.tensor([[5, 9, 33, 2]])

    arguments = {"max_new_tokens": 5, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}

    def generate(hf: Any) -> Tensor:
        return torch.stack(hf.generate(ids, attention_mask=torch.ones_like(ids), **arguments).logits)

    expected = without(hf, hf.model.layers[1].mlp, None, generate)
    with model.generate(ids, use_cache=use_cache, **arguments) as run:
        for _ in run:
            model.layers[1].mlp.skip()
    torch.testing.assert_close(torch.stack(run.output.logits), expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(expected, generate(hf), atol=0.1)


def test_a_skip_with_gradients() -> None:
    model = tiny.shared()
    value = VALUE.clone().requires_grad_()
    with model.trace(tiny.IDS, grad=True):
        model.layers[1].mlp.skip(value)
        model.logits[:, -1, 3].sum().backward()
    with tiny.shared().trace(tiny.IDS, grad=True):
        output = model.layers[1].mlp.mlp_output
        output[:] = VALUE
        model.logits[:, -1, 3].sum().backward()
    torch.testing.assert_close(value.grad, output.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("late", ["at its output", "inside", "after", "past the end"])
def test_a_skip_that_comes_too_late_is_refused(late: str) -> None:
    hf, model = tiny.plain(), tiny.shared()
    hooks = hooks_of(hf)
    with model.trace(tiny.IDS):
        if late == "at its output":
            model.layers[1].mlp.mlp_output
        elif late == "inside":
            model.layers[1].mlp.mlp_activation
        elif late == "after":
            model.layers[2].layer_input
        else:
            model.logits
        with pytest.raises(LateEditError, match=r"layers\.1\.mlp"):
            model.layers[1].mlp.skip()
        assert torch.equal(model.logits, tiny.logits_of(hf))
    assert hooks_of(hf) == hooks


@KINDS
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (torch.zeros(1, 1, 32), ShapeError),
        (torch.zeros(3, 6, 31), ShapeError),
        (torch.zeros(3, 6, 32, dtype=torch.float64), DtypeError),
        (torch.zeros(3, 6, 32, device="meta"), DeviceError),
        (0.0, DtypeError),
    ],
    ids=["broadcast", "width", "dtype", "device", "number"],
)
def test_a_value_that_cannot_stand_for_the_result_is_refused(kind: str, value: Any, error: type[Exception]) -> None:
    _, model = both(kind)
    for name in ("layer", "self_attn", "mlp"):
        with pytest.raises(error, match=r"layers\.1"), model.trace(tiny.IDS):
            host_of(model, name).skip(value)


def test_outside_a_trace_there_is_nothing_to_skip() -> None:
    with pytest.raises(NoTraceError, match=r"layers\.1\.mlp"):
        tiny.shared().layers[1].mlp.skip()
