"""Where families keep their matrices: fused in every way that is known, and not named at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway import StandardizedTransformer
from cutaway.errors import UnavailableValueError
from cutaway.families import FAMILIES
from cutaway.families.family import Family
from cutaway.families.stored import USUAL_WEIGHTS, fused
from tests.families import models

HEADS, KEYS, WIDTH = 4, 2, 8


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Any:
    def open_as(family: Family, **modules: nn.Module) -> Any:
        monkeypatch.setitem(FAMILIES, "llama", family)
        hf = models.build(models.llama())
        for name, module in modules.items():
            setattr(hf.model.layers[0].self_attn if name != "gate_up_proj" else hf.model.layers[0].mlp, name, module)
        return StandardizedTransformer(hf, check=False).layers[0]

    return open_as


def parts(x: Tensor, layer: Any) -> list[Tensor]:
    return [torch.einsum("sm,hmd->shd", x, getattr(layer.self_attn, f"W_{name}")) for name in "QKV"]


@torch.no_grad()
def test_one_projection_holds_each_whole_after_the_other(llama: Any) -> None:
    """As `qkv_proj` and `gate_up_proj` of Phi-3 do."""
    qkv, gate_up = nn.Linear(32, (HEADS + 2 * KEYS) * WIDTH), nn.Linear(32, 2 * 96, bias=False)
    stored = {**USUAL_WEIGHTS, **fused("qkv_proj", "W_Q", "W_K", "W_V"), **fused("gate_up_proj", "W_gate", "W_in")}
    layer = llama(replace(FAMILIES["llama"], weights=stored), qkv_proj=qkv, gate_up_proj=gate_up)
    x = torch.randn(5, 32)
    expected = torch.split(x @ qkv.weight.T, [HEADS * WIDTH, KEYS * WIDTH, KEYS * WIDTH], dim=-1)
    for found, plain in zip(parts(x, layer), expected, strict=True):
        torch.testing.assert_close(found.flatten(1), plain)
    assert torch.equal(layer.self_attn.b_K.flatten(), qkv.bias[HEADS * WIDTH :][: KEYS * WIDTH])
    gate, up = gate_up(x).chunk(2, dim=-1)
    torch.testing.assert_close(x @ layer.mlp.W_gate, gate)
    torch.testing.assert_close(x @ layer.mlp.W_in, up)
    assert layer.mlp.b_in is None


@torch.no_grad()
def test_each_key_head_holds_its_queries_its_key_and_its_value(llama: Any) -> None:
    """As `query_key_value` of the newer Falcons does."""
    qkv = nn.Linear(32, (HEADS + 2 * KEYS) * WIDTH)
    stored = {**USUAL_WEIGHTS, **fused("query_key_value", "W_Q", "W_K", "W_V", by_head=True)}
    layer = llama(replace(FAMILIES["llama"], weights=stored), query_key_value=qkv)
    x = torch.randn(5, 32)
    grouped = (x @ qkv.weight.T).view(5, KEYS, HEADS // KEYS + 2, WIDTH)
    expected = grouped[:, :, :-2].reshape(5, HEADS, WIDTH), grouped[:, :, -2], grouped[:, :, -1]
    for found, plain in zip(parts(x, layer), expected, strict=True):
        torch.testing.assert_close(found, plain)
    assert torch.equal(layer.self_attn.b_V, qkv.bias.view(KEYS, -1, WIDTH)[:, -1])
    assert torch.equal(layer.self_attn.b_Q[3], qkv.bias.view(KEYS, -1, WIDTH)[1, 1])


def test_a_family_that_names_no_module_says_so_and_serves_the_rest(llama: Any) -> None:
    family = FAMILIES["llama"]
    modules = {**family.modules, "attention": {"o_proj": "o_proj"}, "mlp": {"down_proj": "down_proj"}}
    layer = llama(replace(family, modules=modules))
    assert layer.self_attn.W_O.shape == (HEADS, WIDTH, 32)
    assert layer.mlp.W_out.shape == (96, 32)
    for host, name in ((layer.self_attn, "W_Q"), (layer.self_attn, "b_K"), (layer.mlp, "W_in"), (layer.mlp, "W_gate")):
        with pytest.raises(UnavailableValueError, match=r"does not name|not known to have a gate"):
            getattr(host, name)
        assert name not in dir(host)


def test_other_sizes_than_the_configs_are_refused_with_both(llama: Any) -> None:
    layer = llama(FAMILIES["llama"], q_proj=nn.Linear(32, 30))
    with pytest.raises(UnavailableValueError, match=r"\[30, 32\] \[out in\] here, and 32 were expected for 30"):
        layer.self_attn.W_Q
