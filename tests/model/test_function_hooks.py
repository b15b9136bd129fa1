"""`model.hooks`: functions applied to values for the length of a block."""

from __future__ import annotations

import pytest
import torch

from cutaway.errors import CutawayError, DtypeError, ReadOnlyError, ShapeError, UnavailableValueError, UnknownValueError
from tests import raw, tiny


def plus_one(value: torch.Tensor) -> torch.Tensor:
    return value + 1


def raw_plus_one(*modules: torch.nn.Module) -> list:
    return [module.register_forward_hook(lambda _m, _a, out: out + 1) for module in modules]


@pytest.mark.parametrize(
    "names",
    [
        ["layers.*.mlp.mlp_output"],
        ["mlp_output"],
        ["*.mlp_output"],
        ["layers.0.mlp.mlp_output", "layers.1.mlp.mlp_output", "layers.-1.mlp.mlp_output"],
        [f"layers.{i}.mlp.output" for i in range(3)],
        [f"layers.{i}.mlp.down_proj.output" for i in range(3)],
        [f"model.layers.{i}.mlp.fc2.output" for i in range(3)],
    ],
)
def test_values_are_named_by_path_pattern_bare_name_or_native_module(names: list[str]) -> None:
    hf, model = tiny.plain(), tiny.shared()
    handles = raw_plus_one(*(block.mlp for block in hf.model.layers))
    expected = tiny.logits_of(hf)
    for handle in handles:
        handle.remove()
    with model.hooks(dict.fromkeys(names, plus_one)):
        assert torch.equal(model.read(tiny.IDS, "logits")["logits"], expected)
        assert torch.equal(tiny.logits_of(hf), expected)
        with model.trace(tiny.IDS):
            assert torch.equal(model.logits, expected)
    assert not torch.equal(tiny.logits_of(hf), expected)


def test_inputs_of_native_modules_can_be_edited() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected = raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), "mlp_neurons", 1, plus_one)
    with model.hooks({"layers.1.mlp.fc2.input": plus_one}):
        assert torch.equal(tiny.logits_of(hf), expected)


def test_a_trace_inside_sees_the_edited_value_and_may_edit_it_again() -> None:
    hf, model = tiny.plain(), tiny.shared()
    before = raw.value(hf, tiny.as_inputs(tiny.IDS), "layer_output", 1)
    with model.hooks({"layers.1.layer_output": plus_one}), model.trace(tiny.IDS):
        assert torch.equal(model.layers[1].layer_output, before + 1)
        model.layers[1].layer_output *= 2
        logits = model.logits
    expected = raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), "layer_output", 1, lambda value: (value + 1) * 2)
    assert torch.equal(logits, expected)


def test_hooks_entered_inside_a_trace_apply_to_what_is_still_to_come() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.trace(tiny.IDS):
        model.layers[1].mlp.mlp_output
        with model.hooks({"layers.1.layer_output": plus_one}):
            model.layers[2].layer_input
        logits = model.logits
    expected = raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), "layer_output", 1, plus_one)
    assert torch.equal(logits, expected)


def test_none_and_the_same_tensor_leave_the_value() -> None:
    hf, model = tiny.plain(), tiny.shared()
    seen: list[torch.Size] = []
    with model.hooks({"layer_output": lambda value: seen.append(value.shape), "mlp_output": lambda value: value}):
        assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(hf))
    assert len(seen) == 2 * tiny.LAYERS


def test_generation_runs_under_the_functions() -> None:
    hf, model = tiny.plain(), tiny.shared()
    handles = raw_plus_one(hf.model.layers[1])
    expected = hf.generate(tiny.IDS, max_new_tokens=5, do_sample=False)
    for handle in handles:
        handle.remove()
    with model.hooks({"layers.1.layer_output": plus_one}):
        assert torch.equal(hf.generate(tiny.IDS, max_new_tokens=5, do_sample=False), expected)


def test_a_function_that_never_fired_is_an_error_on_leaving() -> None:
    model = tiny.shared()
    with pytest.raises(CutawayError, match=r"the function given for layers\.2\.layer_output was never called"):
        with model.hooks({"layers.2.layer_output": plus_one, "layers.0.layer_output": plus_one}):
            model.read(tiny.IDS, "layers.0.layer_output")
    with pytest.raises(CutawayError, match="The model did not run in this block"):
        with model.hooks({"layers.2.layer_output": plus_one}):
            pass


def test_an_error_of_the_block_is_not_hidden_by_a_function_that_never_fired() -> None:
    model = tiny.shared()
    with pytest.raises(ZeroDivisionError), model.hooks({"layers.2.layer_output": plus_one}):
        model.read(tiny.IDS, "layers.0.layer_output")
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("layers.*.mlp.mlp_outptu", UnknownValueError, "Did you mean 'layers.*.mlp.mlp_output'"),
        ("layers.9.mlp.output", UnknownValueError, "there is no module `layers.9.mlp`"),
        ("layers.0.mlp.fc3.output", UnknownValueError, "fc3"),
        ("layer_mid", UnavailableValueError, "parallel"),
        ("next_token_probs", ReadOnlyError, "can be read and not edited"),
    ],
)
def test_a_wrong_name_is_an_error_before_anything_runs(name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        tiny.shared().hooks({name: plus_one})
    assert words in str(caught.value)


def test_what_a_function_returns_must_fit() -> None:
    model = tiny.shared()
    for wrong, error in (
        (lambda value: value[:, :-1], ShapeError),
        (lambda value: value.double(), DtypeError),
        (lambda value: 3, DtypeError),
    ):
        with pytest.raises(error, match=r"layers\.1\.layer_output"), model.hooks({"layers.1.layer_output": wrong}):
            model.read(tiny.IDS, "logits")
