"""Editing a value changes the logits exactly as the same edit made by a raw hook does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from tests import raw, tiny

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
INSIDE = raw.INTERIOR[3:5]


def nudged(name: str, value: Tensor) -> Tensor:
    """An edit that is not the same when it is made twice."""
    if name == "input_ids":
        return (value + 1) % tiny.VOCAB
    if name == "attention_mask":
        new = value.clone()
        new[:, 3] = 0
        return new
    if name == "attention_probabilities":
        return value * 0.5 + value.roll(1, dims=-2) * 0.25
    return value + 1 + 0.5 * torch.arange(value.shape[-1], dtype=value.dtype).remainder(3)


def host_of(model: StandardizedTransformer, path: str) -> Any:
    host: Any = model
    for part in path.split(".")[:-1]:
        host = host[int(part)] if part.isdigit() else getattr(host, part)
    return host


def by_assignment(model: StandardizedTransformer, name: str, layer: int) -> Tensor:
    host = host_of(model, raw.path_of(name, layer))
    with model.trace(tiny.LEFT_PADDED):
        setattr(host, name, nudged(name, getattr(host, name)))
        return model.logits


def in_place(model: StandardizedTransformer, name: str, layer: int) -> Tensor:
    host = host_of(model, raw.path_of(name, layer))
    with model.trace(tiny.LEFT_PADDED):
        value = getattr(host, name)
        value[:] = nudged(name, value)
        return model.logits


def by_function(model: StandardizedTransformer, name: str, layer: int) -> Tensor:
    with model.hooks({raw.path_of(name, layer): lambda value: nudged(name, value)}):
        return model.read(tiny.LEFT_PADDED, "logits")["logits"]


def by_function_in_place(model: StandardizedTransformer, name: str, layer: int) -> Tensor:
    def function(value: Tensor) -> None:
        value[:] = nudged(name, value)

    with model.hooks({raw.path_of(name, layer): function}), torch.no_grad():
        return model.hf(**{key: tensor.clone() for key, tensor in tiny.LEFT_PADDED.items()}).logits


@pytest.mark.parametrize("edit", [by_assignment, in_place, by_function, by_function_in_place])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", raw.WRITABLE)
def test_an_edit_is_the_same_edit_made_by_a_raw_hook(name: str, attention: str, edit: Any) -> None:
    for dtype in DTYPES:
        hf, model = tiny.plain("P-gqa", attention, dtype), tiny.shared("P-gqa", attention, dtype)
        inputs = {key: tensor.clone() for key, tensor in tiny.LEFT_PADDED.items()}
        expected = raw.edited_logits(hf, inputs, name, 1, lambda value: nudged(name, value))
        before = tiny.logits_of(hf, tiny.LEFT_PADDED)
        assert before.isfinite().all()
        ours = edit(model, name, 1)
        assert not torch.equal(ours, before)
        if attention == "sdpa" and name in INSIDE:
            real = tiny.LEFT_PADDED["attention_mask"].bool()
            difference = (ours.float() - expected.float())[real].abs().max()
            assert difference <= 32 * torch.finfo(dtype).eps * expected.float().abs().max(), dtype
        else:
            torch.testing.assert_close(ours, expected, atol=0, rtol=0, equal_nan=True)
        assert torch.equal(tiny.logits_of(hf, tiny.LEFT_PADDED), before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", raw.WRITABLE)
def test_putting_back_an_equal_value_changes_nothing(name: str, dtype: torch.dtype) -> None:
    hf, model = tiny.plain("P-gqa", "eager", dtype), tiny.shared("P-gqa", "eager", dtype)
    host = host_of(model, raw.path_of(name, 1))
    with model.trace(tiny.LEFT_PADDED):
        setattr(host, name, getattr(host, name).clone())
        logits = model.logits
    assert logits.dtype == dtype
    assert torch.equal(logits, tiny.logits_of(hf, tiny.LEFT_PADDED))


def test_the_callers_inputs_are_left_alone_by_edits_of_them() -> None:
    model, mine = tiny.shared(), {key: tensor.clone() for key, tensor in tiny.LEFT_PADDED.items()}
    with model.trace(mine):
        model.input_ids[:] = 3
        model.attention_mask[:] = 1
        model.logits
    for key, tensor in mine.items():
        assert torch.equal(tensor, tiny.LEFT_PADDED[key])


def test_several_edits_in_one_pass_add_up() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.trace(tiny.IDS):
        for layer in model.layers:
            layer.mlp.mlp_output += 1
            layer.layer_output = layer.layer_output * 2
        logits = model.logits
    handles = []
    for block in hf.model.layers:
        handles.append(block.mlp.register_forward_hook(lambda _m, _a, out: out + 1))
        handles.append(block.register_forward_hook(lambda _m, _a, out: out * 2))
    expected = tiny.logits_of(hf)
    for handle in handles:
        handle.remove()
    assert torch.equal(logits, expected)
