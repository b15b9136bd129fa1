"""An edit in place that comes after the pass has moved on is told, under every mode; one in time acts as without it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from cutaway.errors import LateEditError
from tests import tiny

MODES = pytest.mark.parametrize(
    "mode", [contextlib.nullcontext, torch.no_grad, torch.inference_mode], ids=["plain", "no_grad", "inference"]
)


@MODES
@pytest.mark.parametrize("name", ["layer_input", "layer_output", "self_attn.attention_keys", "self_attn.output"])
@pytest.mark.parametrize("leaves", [True, False], ids=["at the end", "at the next value"])
def test_a_late_edit_in_place_is_told(mode: Any, name: str, leaves: bool) -> None:
    model = tiny.shared()
    with mode(), pytest.raises(LateEditError, match=r"layers\.0"), model.trace(tiny.IDS):
        host = model.layers[0].self_attn if "." in name else model.layers[0]
        value = getattr(host, name.rpartition(".")[2])
        model.layers[2].layer_input
        (value[0] if isinstance(value, tuple) else value)[:] = 0
        if not leaves:
            model.logits


@MODES
def test_with_gradients_and_in_generation_too(mode: Any) -> None:
    model = tiny.shared()
    with mode(), pytest.raises(LateEditError), model.generate(tiny.IDS, max_new_tokens=2):
        value = model.layers[0].layer_output
        model.layers[2].layer_input
        value[:] = 0
    if mode is contextlib.nullcontext:
        with pytest.raises(LateEditError), model.trace(tiny.IDS, grad=True):
            value = model.layers[0].layer_output
            model.layers[2].layer_input
            value[:] = 0


@pytest.mark.parametrize("assigned", [True, False], ids=["assigned", "in place"])
def test_under_inference_mode_edits_in_time_act_as_without_it(assigned: bool) -> None:
    model = tiny.shared()
    found = []
    for mode in (torch.inference_mode, torch.no_grad):
        with mode(), model.trace(tiny.IDS):
            output = model.layers[0].mlp.mlp_output
            if assigned:
                model.layers[0].mlp.mlp_output = output * 2
            else:
                output *= 2
            found.append(model.logits.clone())
    assert torch.equal(*found)
    assert not torch.equal(found[0], tiny.logits_of(tiny.plain()))


def test_what_was_assigned_under_inference_mode_cannot_be_edited_late_either() -> None:
    model = tiny.shared()
    with torch.inference_mode(), pytest.raises(LateEditError), model.trace(tiny.IDS):
        model.layers[0].layer_output = torch.zeros(3, 6, tiny.HIDDEN)
        value = model.layers[0].layer_output
        model.layers[2].layer_input
        value[:] = 1
