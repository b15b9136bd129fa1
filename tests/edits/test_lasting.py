"""`editing`, `edited` and `steer`: edits that stay over many passes, and leave the original alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import InputError, ShapeError, UnavailableValueError, UnknownValueError
from tests import raw, tiny
from tests.generation.test_steps import both, hooks_of

VECTOR = 5 * torch.randn(32, generator=torch.Generator().manual_seed(0))
PROMPT = torch.tensor([[5, 9, 33, 2]])


def moved(value: Tensor) -> Tensor:
    return value + VECTOR


def by_hook(hf: Any, path: str, run: Any, edit: Any = moved) -> Any:
    def change(_module: Any, _args: Any, output: Any) -> Any:
        return (edit(output[0]), *output[1:]) if isinstance(output, tuple) else edit(output)

    handle = hf.get_submodule(path).register_forward_hook(change)
    try:
        with torch.no_grad():
            return run(hf)
    finally:
        handle.remove()


def logits_of(hf: Any) -> Tensor:
    return hf(tiny.IDS, attention_mask=torch.ones_like(tiny.IDS)).logits


def generated(hf: Any) -> Tensor:
    return hf.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=6, do_sample=False)


@pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
def test_an_edited_model_keeps_its_edits_over_many_passes_and_the_original_has_none(kind: str) -> None:
    _, model = both(kind)
    hf = model.hf
    block = model.layers[1]._module_path
    expected, text = by_hook(hf, block, logits_of), by_hook(hf, block, generated)
    plain, plain_text, hooks = logits_of(hf), generated(hf), hooks_of(hf)
    edited = model.edited({"layers.1.layer_output": moved})
    for _ in range(3):
        with edited.trace(tiny.IDS):
            assert torch.equal(edited.logits, expected)
        assert torch.equal(edited.read(tiny.IDS, "logits")["logits"], expected)
        with edited.generate(PROMPT, max_new_tokens=6, do_sample=False) as run:
            pass
        assert torch.equal(run.output, text)
        with model.trace(tiny.IDS):
            assert torch.equal(model.logits, plain)
        with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as run:
            pass
        assert torch.equal(run.output, plain_text)
        assert torch.equal(logits_of(hf), plain)
        assert torch.equal(logits_of(edited.hf), expected)
        assert torch.equal(generated(edited.hf), text)
    assert hooks_of(hf) == hooks
    assert not torch.equal(expected, plain)


def test_the_edited_models_weights_are_the_originals_own() -> None:
    model = tiny.shared()
    edited = model.edited({"layers.1.layer_output": moved})
    assert [id(p) for p in edited.hf.parameters()] == [id(p) for p in model.hf.parameters()]
    assert edited.sizes == model.sizes
    assert str(edited.support()) == str(model.support())


def test_traces_of_the_original_and_of_an_edited_model_nest() -> None:
    hf, model = tiny.plain(), tiny.shared()
    edited = model.edited({"layers.1.layer_output": moved})
    plain, expected = tiny.logits_of(hf), by_hook(hf, "model.layers.1", logits_of)
    with model.trace(tiny.IDS):
        model.layers[0].layer_output
        with edited.trace(tiny.IDS):
            edited.layers[0].layer_output
            with model.trace(tiny.IDS):
                assert torch.equal(model.logits, plain)
            assert torch.equal(edited.logits, expected)
        assert torch.equal(model.logits, plain)


def test_edits_of_edits_add_up_in_the_order_given() -> None:
    hf, model = tiny.plain(), tiny.shared()
    first = model.edited({"layers.1.layer_output": moved})
    second = first.edited({"layers.1.layer_output": lambda value: value * 2})
    both_edits = by_hook(hf, "model.layers.1", logits_of, lambda value: (value + VECTOR) * 2)
    assert torch.equal(second.read(tiny.IDS, "logits")["logits"], both_edits)
    assert torch.equal(first.read(tiny.IDS, "logits")["logits"], by_hook(hf, "model.layers.1", logits_of))


def test_a_trace_of_an_edited_model_sees_the_edited_value_and_edits_on() -> None:
    hf, model = tiny.plain(), tiny.shared()
    edited = model.edited({"layers.1.layer_output": moved})
    stream = raw.value(hf, tiny.as_inputs(tiny.IDS), "layer_output", 1)
    with edited.trace(tiny.IDS):
        assert torch.equal(edited.layers[1].layer_output, stream + VECTOR)
        edited.layers[1].layer_output *= 2
        assert torch.equal(edited.logits, by_hook(hf, "model.layers.1", logits_of, lambda value: (value + VECTOR) * 2))


def test_edits_of_an_edited_model_have_positions_and_gradients() -> None:
    hf, model = tiny.plain(), tiny.shared()
    edited = model.edited({"layers.1.layer_output": moved}, positions=[1, 4])

    def at_two(value: Tensor) -> Tensor:
        value = value.clone()
        value[:, [1, 4]] += VECTOR
        return value

    assert torch.equal(edited.read(tiny.IDS, "logits")["logits"], by_hook(hf, "model.layers.1", logits_of, at_two))
    scaled = model.edited({"layers.1.layer_output": lambda value: value * 3})
    with scaled.trace(tiny.IDS, grad=True):
        before = scaled.layers[1].mlp.mlp_output
        after = scaled.layers[1].layer_output
        scaled.logits[:, -1, 3].sum().backward()
    torch.testing.assert_close(before.grad, 3 * after.grad)


def test_editing_lasts_for_its_block_over_traces_and_generations() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected, text = by_hook(hf, "model.layers.1", logits_of), by_hook(hf, "model.layers.1", generated)
    hooks = hooks_of(hf)
    with model.editing({"layers.1.layer_output": moved}):
        for _ in range(2):
            assert torch.equal(model.read(tiny.IDS, "logits")["logits"], expected)
            with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as run:
                pass
            assert torch.equal(run.output, text)
        model.read(tiny.IDS, "layers.0.layer_output")
    with model.editing({"layers.2.layer_output": moved}):
        model.read(tiny.IDS, "layers.0.layer_output")  # it is no fault that the function was never called
    assert hooks_of(hf) == hooks
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(hf))


@pytest.mark.parametrize("how", ["editing", "edited", "steer"])
def test_other_threads_are_left_alone(how: str) -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected = tiny.logits_of(hf)
    found: list[Tensor] = []

    def elsewhere() -> None:
        found.append(model.read(tiny.IDS, "logits")["logits"])
        found.append(tiny.logits_of(hf))
        with model.generate(PROMPT, max_new_tokens=3, do_sample=False) as run:
            pass
        found.append(run.output)

    def run_elsewhere() -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    if how == "edited":
        edited = model.edited({"layers.1.layer_output": moved})
        with edited.trace(tiny.IDS):
            edited.layers[0].layer_output
            run_elsewhere()
    else:
        edits = model.editing({"layers.1.layer_output": moved}) if how == "editing" else model.steer(1, VECTOR)
        with edits:
            run_elsewhere()
            model.read(tiny.IDS, "logits")  # it is told if it never acts
    assert torch.equal(found[0], expected)
    assert torch.equal(found[1], expected)
    assert torch.equal(found[2], hf.generate(PROMPT, max_new_tokens=3, do_sample=False))


@pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
def test_steering_adds_the_vector_to_what_leaves_the_layer(kind: str) -> None:
    _, model = both(kind)
    hf = model.hf
    block = model.layers[1]._module_path
    expected = by_hook(hf, block, logits_of, lambda value: value + 2.5 * VECTOR)
    with model.steer(1, VECTOR, factor=2.5):
        assert torch.equal(model.read(tiny.IDS, "logits")["logits"], expected)
        with model.generate(PROMPT, max_new_tokens=6, do_sample=False) as run:
            pass
    assert torch.equal(run.output, by_hook(hf, block, generated, lambda value: value + 2.5 * VECTOR))
    with model.steer([0, -1, 2], VECTOR):
        several = model.read(tiny.IDS, "logits")["logits"]
    first, last = model.layers[0]._module_path, model.layers[2]._module_path
    assert torch.equal(several, by_hook(hf, first, lambda hf: by_hook(hf, last, logits_of)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_float32_vector_steers_a_half_precision_model_in_its_own_dtype(dtype: torch.dtype) -> None:
    hf, model = tiny.plain("P", "sdpa", dtype), tiny.shared("P", "sdpa", dtype)
    expected = by_hook(hf, "model.layers.1", logits_of, lambda value: value + (0.3 * VECTOR).to(dtype))
    with model.steer(1, VECTOR, factor=0.3), model.trace(tiny.IDS):
        assert model.layers[1].layer_output.dtype == dtype
        assert torch.equal(model.logits, expected)


BAD: list[tuple[Any, type[Exception], str]] = [
    (lambda m: m.steer(9, VECTOR), IndexError, "there is no layer 9"),
    (lambda m: m.steer([], VECTOR), InputError, "no layer"),
    (lambda m: m.steer(1, torch.zeros(31)), ShapeError, r"\[31\]"),
    (lambda m: m.steer(1, torch.tensor(1.0)), ShapeError, r"\[\]"),
    (lambda m: m.steer(1, [0.0] * 32), InputError, "a list"),
    (lambda m: m.steer(1, VECTOR, positions="promt"), InputError, "promt"),
    (lambda m: m.edited({"layers.1.layer_outptu": moved}), UnknownValueError, "Did you mean"),
    (lambda m: m.editing({"layer_mid": moved}), UnavailableValueError, "parallel"),
]


@pytest.mark.parametrize(("ask", "error", "words"), BAD)
def test_bad_input_is_refused_before_anything_runs(ask: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ask(tiny.shared())
