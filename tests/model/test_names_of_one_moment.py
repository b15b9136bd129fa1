"""What passes at one moment has several names: an edit under one of them shows under every other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cutaway import StandardizedTransformer
from tests import tiny
from tests.families import models

PAIRS = {
    "layer output": ("layers.1", "layer_output", "output"),
    "layer input": ("layers.1", "layer_input", "input"),
    "mlp output": ("layers.1.mlp", "mlp_output", "output"),
    "attention output": ("layers.1.self_attn", "attention_output", "output"),
    "final norm": ("", "final_norm_output", "norm.output"),
    "logits": ("", "logits", "output"),
}


def host_of(model: StandardizedTransformer, path: str) -> Any:
    host: Any = model
    for part in filter(None, path.split(".")):
        host = host[int(part)] if part.isdigit() else getattr(host, part)
    return host


def whole(passing: Any) -> torch.Tensor:
    """The tensor of a module's own output: itself, the first of a tuple, or the logits."""
    return passing.logits if hasattr(passing, "logits") else passing[0] if isinstance(passing, tuple) else passing


def native(host: Any, name: str) -> Any:
    for part in name.split("."):
        host = getattr(host, part)
    return host


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("family", ["phi", "llama", "gpt2", "neox"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_after_an_assignment_every_other_name_is_the_new_value(
    pair: tuple[str, str, str], family: str, grad: bool
) -> None:
    path, standard, own = pair
    model = tiny.shared() if family == "phi" else models.wrapped(family)
    plain = tiny.plain() if family == "phi" else models.plain(family)
    with model.trace(models.IDS, grad=grad):
        host = host_of(model, path)
        before = whole(native(host, own)).detach().clone()
        assert torch.equal(getattr(host, standard).detach(), before)
        setattr(host, standard, getattr(host, standard) + 1)
        assert torch.equal(whole(native(host, own)).detach(), before + 1)
        assert torch.equal(getattr(host, standard).detach(), before + 1)
        logits = model.logits.detach()
    assert not torch.equal(logits, models_logits(plain))


def models_logits(hf: Any) -> torch.Tensor:
    with torch.no_grad():
        return hf(input_ids=models.IDS, attention_mask=torch.ones_like(models.IDS)).logits


@pytest.mark.parametrize("grad", [False, True])
def test_an_assignment_to_a_modules_own_output_shows_under_the_standard_name(grad: bool) -> None:
    model, hf = tiny.shared(), tiny.plain()
    with model.trace(tiny.IDS, grad=grad):
        mlp = model.layers[1].mlp
        before = mlp.mlp_output.detach().clone()
        mlp.output = mlp.output * 2
        assert torch.equal(mlp.mlp_output.detach(), before * 2)
        mlp.mlp_output = mlp.mlp_output + 1
        assert torch.equal(mlp.output.detach(), before * 2 + 1)
        logits = model.logits.detach()
    handle = hf.model.layers[1].mlp.register_forward_hook(lambda _module, _args, output: output * 2 + 1)
    try:
        expected = tiny.logits_of(hf)
    finally:
        handle.remove()
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("grad", [False, True])
def test_an_edit_in_place_shows_in_the_whole_that_was_read_before(grad: bool) -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS, grad=grad):
        attention = model.layers[1].self_attn
        before = attention.output[0].detach().clone()
        attention.attention_output[:] += 1
        assert torch.equal(attention.output[0].detach(), before + 1)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_queries_keys_and_values_are_edited_each_on_its_own(family: str) -> None:
    model = models.wrapped(family)
    names = ("attention_queries", "attention_keys", "attention_values")
    with model.trace(models.IDS):
        attention = model.layers[1].self_attn
        before = [getattr(attention, name).clone() for name in names]
        for i, name in enumerate(names):
            setattr(attention, name, getattr(attention, name) + i + 1)
        after = [getattr(attention, name).clone() for name in names]
    for i in range(3):
        assert torch.equal(after[i], before[i] + i + 1)
