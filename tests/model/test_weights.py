"""Weights by standard names: against the plain modules, in float64, in every family."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway import StandardizedTransformer
from cutaway.errors import ReadOnlyError, UnavailableValueError, UnknownValueError
from tests import tiny
from tests.families import models

KINDS = [*models.CONFIGS, "phi", "phi-gqa"]
PHI = {"phi": "P", "phi-gqa": "P-gqa"}


def pair(kind: str, dtype: torch.dtype = torch.float64) -> tuple[Any, StandardizedTransformer]:
    if kind in PHI:
        return tiny.plain(PHI[kind], dtype=dtype), tiny.shared(PHI[kind], dtype=dtype)
    model = models.wrapped(kind, dtype=dtype)
    return model.hf, model


def projected(hf: Any, kind: str, x: Tensor, layer: int) -> list[Tensor]:
    """Queries, keys and values before the rotary, `[batch seq heads width]`, as each modelling file takes them."""
    heads = hf.config.num_attention_heads
    if kind.startswith("gptj"):
        own = hf.transformer.h[layer].attn
        return [project(x).unflatten(-1, (heads, -1)) for project in (own.q_proj, own.k_proj, own.v_proj)]
    if kind.startswith("gpt2"):
        return [t.unflatten(-1, (heads, -1)) for t in hf.transformer.h[layer].attn.c_attn(x).chunk(3, dim=-1)]
    if kind.startswith("neox"):
        fused = hf.gpt_neox.layers[layer].attention.query_key_value(x)
        return list(fused.unflatten(-1, (heads, -1)).chunk(3, dim=-1))
    attention = hf.model.layers[layer].self_attn
    keys = hf.config.num_key_value_heads
    if kind.startswith("phi3"):
        return list(attention.qkv_proj(x).unflatten(-1, (heads + 2 * keys, -1)).split([heads, keys, keys], dim=-2))
    return [
        getattr(attention, f"{name}_proj")(x).unflatten(-1, (count, -1))
        for name, count in (("q", heads), ("k", keys), ("v", keys))
    ]


def times(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    made = torch.einsum("bsm,hmd->bshd", x, weight)
    return made if bias is None else made + bias


@pytest.mark.parametrize("kind", KINDS)
def test_heads_projections_are_those_of_the_plain_modules(kind: str) -> None:
    hf, model = pair(kind)
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    for layer in range(3):
        attention = model.layers[layer].self_attn
        with torch.no_grad():
            expected = projected(hf, kind, x, layer)
        for name, value in zip("QKV", expected, strict=True):
            found = times(x, getattr(attention, f"W_{name}"), getattr(attention, f"b_{name}"))
            torch.testing.assert_close(found, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_mlp_and_vocabulary_are_those_of_the_plain_modules(kind: str) -> None:
    hf, model = pair(kind)
    sizes = model.sizes
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(2, 3, *shape, generator=generator, dtype=torch.float64)

    def plus(value: Tensor, bias: Tensor | None) -> Tensor:
        return value if bias is None else value + bias

    z, x = random(sizes["num_heads"], sizes["head_dim"]), random(32)
    layer = model.layers[1]
    gated = ("up_proj", "down_proj", "gate_proj")
    own: dict[str, tuple[str, str, str]] = {
        "phi": ("fc1", "fc2", ""),
        "gpt2": ("c_fc", "c_proj", ""),
        "gptj": ("fc_in", "fc_out", ""),
        "neox": ("dense_h_to_4h", "dense_4h_to_h", ""),
        "phi3": ("gate_up_proj", "down_proj", "gate_up_proj"),
    }
    first, last, gate = own.get(kind.partition("-")[0], gated)
    experts = "num_experts" in sizes
    attention, mlp = layer.self_attn.module, layer.mlp.module
    outputs = ("dense", "c_proj", "o_proj", "out_proj")
    dense = next(getattr(attention, name) for name in outputs if hasattr(attention, name))
    with torch.no_grad():
        cases = [
            (plus(torch.einsum("bshd,hdm->bsm", z, layer.self_attn.W_O), layer.self_attn.b_O), dense(z.flatten(-2))),
            (plus(x @ model.W_U, model.b_U), hf.lm_head(x)),
        ]
        if experts:
            assert not [name for name in dir(layer.mlp) if name[:2] in ("W_", "b_")]
        else:
            neurons = random(width := sizes["intermediate_size"])
            cases.append((plus(x @ layer.mlp.W_in, layer.mlp.b_in), getattr(mlp, first)(x)[..., -width:]))
            cases.append((plus(neurons @ layer.mlp.W_out, layer.mlp.b_out), getattr(mlp, last)(neurons)))
        if type(hf.get_input_embeddings()) is nn.Embedding:
            cases.append((model.W_E[tiny.IDS], hf.get_input_embeddings()(tiny.IDS)))
        else:
            with pytest.raises(UnavailableValueError, match="more than multiply"):
                model.W_E
        if gate and not experts:
            cases.append((plus(x @ layer.mlp.W_gate, layer.mlp.b_gate), getattr(mlp, gate)(x)[..., :width]))
    for found, expected in cases:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if not gate or experts:
        with pytest.raises(UnavailableValueError, match="experts" if experts else "gate"):
            layer.mlp.W_gate
    assert getattr(attention, "o_proj", dense) is layer.self_attn.o_proj.module


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_those_of_the_layouts_and_memory_is_the_parameters(kind: str) -> None:
    hf, model = pair(kind)
    memory = {parameter.untyped_storage().data_ptr() for parameter in hf.parameters()}
    hosts = (model, model.layers[2].self_attn, model.layers[2].mlp)
    names = [(host, name) for host in hosts for name in dir(host) if name[:2] in ("W_", "b_")]
    assert len(names) >= (6 if "num_experts" in model.sizes else 8)
    for host, name in names:
        tensor = getattr(host, name)
        axes = getattr(type(host), name).__doc__.partition("]")[0].strip("[").split()
        assert tuple(tensor.shape) == tuple(model.sizes[axis] for axis in axes), name
        assert tensor.untyped_storage().data_ptr() in memory, name
        assert not tensor.requires_grad


WRITES = [
    lambda w: w.__setitem__(0, 1.0),
    lambda w: w[0].zero_(),
    lambda w: w.mT[0].add_(1),
    lambda w: w.permute(2, 0, 1).mul_(2),
    lambda w: w.data.fill_(0),
    lambda w: torch.add(w, 1, out=w),
    lambda w: nn.init.zeros_(w),
    lambda w: torch.nn.functional.relu(w, inplace=True),
    lambda w: w.__iadd__(1),
    lambda w: w.detach().copy_(torch.zeros_like(w)),
    lambda w: w.unbind(0)[0].zero_(),
    lambda w: torch._foreach_zero_([w]),
    lambda w: setattr(w, "data", torch.zeros(1)),
]


@pytest.mark.parametrize("number", range(len(WRITES)))
def test_writing_into_one_is_refused_and_changes_nothing(number: int) -> None:
    hf, model = pair("neox", torch.float32)
    before = copy.deepcopy(hf.state_dict())
    with pytest.raises(ReadOnlyError, match=r"clone\(\)"):
        WRITES[number](model.layers[0].self_attn.W_Q)
    with pytest.raises(ReadOnlyError, match=r"layers\.0\.self_attn\.W_Q"):
        model.layers[0].self_attn.W_Q = torch.zeros(1)
    with pytest.raises(ValueError, match="read-only"):
        model.W_E.numpy()[0] = 0
    assert all(torch.equal(before[name], tensor) for name, tensor in hf.state_dict().items())


def test_what_is_computed_of_one_is_a_plain_tensor() -> None:
    _, model = pair("llama", torch.float32)
    weight = model.layers[0].self_attn.W_O
    for made in (weight * 2, weight.clone(), copy.deepcopy(weight), weight.sum(0), torch.stack([weight, weight])):
        assert type(made) is Tensor
        made += 1
    x = torch.zeros(4, 8)
    x += weight[0, :4, :8]
    assert torch.equal(x, weight[0, :4, :8])
    assert weight[0].T.shape == (32, 8)
    assert weight.float() is not None
    assert "tensor" in repr(weight).lower()


def test_names_that_are_near_or_elsewhere_are_told() -> None:
    _, model = pair("llama", torch.float32)
    with pytest.raises(UnknownValueError, match=r"model\.layers\[0\]\.self_attn\.W_Q"):
        model.W_Q
    with pytest.raises(UnknownValueError, match="W_in"):
        model.layers[0].mlp.W_i
    with pytest.raises(UnknownValueError, match=r"is a weight.*model\.layers\[i\]\.mlp\.W_out"):
        model.read(tiny.IDS, "layers.0.mlp.W_out")


def test_a_module_that_computes_with_more_than_one_matrix_has_none() -> None:
    class Adapted(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base_layer = base
            self.weight, self.bias = base.weight, base.bias

        def forward(self, x: Tensor) -> Tensor:
            return self.base_layer(x) * 0.5

    class Scaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    hf = models.build(models.llama())
    attention = hf.model.layers[1].self_attn
    attention.q_proj, attention.k_proj = Adapted(attention.q_proj), Scaled(32, 16, bias=False)
    attention.o_proj = Adapted(attention.o_proj)
    model = StandardizedTransformer(hf)
    found = model.layers[1].self_attn
    for name in ("W_Q", "b_Q", "W_K", "W_O"):
        with pytest.raises(UnavailableValueError, match="more than multiply"):
            getattr(found, name)
    assert not hasattr(found, "W_Q")
    assert found.W_V.shape == (2, 32, 8)
    with model.trace(tiny.IDS), pytest.raises(UnavailableValueError, match=r"derived from `W_O`.*more than multiply"):
        found.head_contributions
    assert [*model.read(tiny.IDS, "head_contributions")] == [f"layers.{i}.self_attn.head_contributions" for i in (0, 2)]


def test_weights_come_when_they_are_asked_for() -> None:
    model = StandardizedTransformer("phi-mini", dispatch=False)
    weight = model.layers[0].self_attn.W_Q
    assert weight.device.type == "cpu"
    assert torch.equal(weight[0], model.layers[0].self_attn.q_proj.weight[: model.head_dim].T)
