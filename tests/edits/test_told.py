"""An edit that never acted is told, whatever the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import CutawayError, IdleEditWarning, InputError, ShapeError
from tests import tiny
from tests.edits.test_lasting import VECTOR, by_hook, logits_of


def moved(value: Tensor) -> Tensor:
    return value + VECTOR


def read(model: Any) -> None:
    model.read([5, 9], "logits")


def generate(model: Any) -> None:
    with model.generate([5, 9], max_new_tokens=3, do_sample=False):
        pass


CASES: list[tuple[dict[str, Any], Any, str]] = [
    ({"positions": 50}, read, r"layers\.1\.layer_output was called, and position 50 never came.*2 tokens"),
    ({"positions": [7, 8]}, read, r"\(7, 8\) ever came.*2 tokens"),
    ({"positions": -3}, read, "position -3 never came"),
    ({"positions": slice(2, None)}, read, r"2: ever came"),
    ({"positions": "new"}, read, "no new token ever came"),
    ({"positions": "new"}, lambda m: m.hf(tiny.IDS), "no new token ever came"),
    ({"step": 1}, read, "step 1 never came: no generated token was run"),
    ({"step": 7}, generate, "step 7 never came: the last step was 2"),
    ({"positions": [[5], [9]]}, lambda m: m.read([[5, 9], [3]], "logits"), "ever came"),
    ({}, lambda m: None, "The model did not run in this block"),
    ({}, lambda m: m.trace([5, 9]).__enter__().__exit__(None, None, None), "The model did not run in this block"),
    ({}, lambda m: m.read([5, 9], "layers.0.layer_output"), "Either every pass was left before it"),
]


@pytest.mark.parametrize(("where", "run", "words"), CASES, ids=[f"{w} {i}" for i, (w, _, _) in enumerate(CASES)])
def test_it_is_told_on_leaving_which_edit_and_why(where: dict[str, Any], run: Any, words: str) -> None:
    model = tiny.shared()
    with pytest.raises(CutawayError, match=words), model.hooks({"layers.1.layer_output": moved}, **where):
        run(model)
    if "step" not in where:
        with pytest.raises(CutawayError, match=words), model.steer(1, VECTOR, **where):
            run(model)
    if not where:
        with model.editing({"layers.1.layer_output": moved}):
            run(model)
        return
    with pytest.raises(CutawayError, match=words), model.editing({"layers.1.layer_output": moved}, **where):
        run(model)
    with pytest.raises(ZeroDivisionError), model.hooks({"layers.1.layer_output": moved}, **where):
        run(model)
        raise ZeroDivisionError


def test_a_value_that_the_call_does_not_have_is_told() -> None:
    with pytest.raises(CutawayError, match=r"attention_mask was never called\. The model was called without it"):
        with tiny.shared().hooks({"attention_mask": lambda value: value}):
            tiny.plain()(tiny.IDS)


def test_each_layer_of_a_pattern_must_act() -> None:
    model = tiny.shared()
    with pytest.raises(CutawayError, match=r"layers\.1\.layer_output, layers\.2\.layer_output was never called"):
        with model.hooks({"layers.*.layer_output": moved}):
            model.read(tiny.IDS, "layers.0.layer_output")


def test_an_edited_model_warns_of_a_pass_in_which_its_edit_cannot_act() -> None:
    edited = tiny.shared().edited({"layers.1.layer_output": moved}, positions="new")
    with pytest.warns(IdleEditWarning, match=r"layers\.1\.layer_output was called, and no new token"):
        edited.read(tiny.IDS, "logits")
    with pytest.warns(IdleEditWarning, match="no new token"), edited.trace(tiny.IDS):
        edited.logits
    edited.read(tiny.IDS, "layers.0.layer_output")  # left before it
    generate(edited)
    far = tiny.shared().edited({"layers.1.layer_output": moved}, step=9)
    with pytest.warns(IdleEditWarning, match="step 9 never came"):
        generate(far)
    cut = tiny.shared().edited({"mlp_output": moved})
    with pytest.warns(IdleEditWarning, match="did not come by"), cut.trace(tiny.IDS):
        _without_layers(cut)


def _without_layers(model: Any) -> None:
    for layer in model.layers:
        layer.skip()
    model.logits


STACK = torch.stack([VECTOR, 2 * VECTOR])


def test_a_stack_of_vectors_is_one_a_layer() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected = by_hook(
        hf,
        "model.layers.0",
        lambda hf: by_hook(hf, "model.layers.2", logits_of, lambda v: v + VECTOR),
        lambda v: v + 2 * VECTOR,
    )
    ids = tiny.IDS[:, :2]  # as many tokens as vectors
    with model.steer([2, 0], STACK):
        assert torch.equal(model.read(tiny.IDS, "logits")["logits"], expected)
        short = model.read(ids, "layers.*.layer_output")
    raw = hf(ids, attention_mask=torch.ones_like(ids), output_hidden_states=True).hidden_states
    assert torch.equal(short["layers.0.layer_output"], raw[1] + 2 * VECTOR)
    with model.steer([2, 0], VECTOR):
        assert torch.equal(model.read(ids, "layers.0.layer_output")["layers.0.layer_output"], raw[1] + VECTOR)
        model.read(ids, "logits")


@pytest.mark.parametrize("vector", [STACK[None], STACK[:, None], torch.ones(6, 32), torch.ones(3, 6, 32), STACK.T])
def test_any_other_shape_is_refused(vector: Tensor) -> None:
    for layers in ([1, 2], 1):
        with pytest.raises(ShapeError, match="one for each layer"):
            tiny.shared().steer(layers, vector)
    with pytest.raises(InputError, match="named twice"):
        tiny.shared().steer([1, -2], STACK)


def test_functions_that_are_not_given_by_name_are_told() -> None:
    model = tiny.shared()
    for call in (model.hooks, model.editing, model.edited):
        with pytest.raises(InputError, match="by name"):
            call([("layers.1.mlp.mlp_output", lambda value: value)])
