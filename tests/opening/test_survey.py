"""The survey of models whose twin needs care, or cannot run: then the model itself is surveyed, and left alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PhiForCausalLM

from cutaway import StandardizedTransformer
from tests import raw, tiny


class FailsOnMeta(PhiForCausalLM):
    """Looks at numbers, as routers do, which a model without weights has none of."""

    def forward(self, input_ids: Tensor | None = None, **kwargs: Any) -> Any:
        if input_ids is not None and input_ids.is_meta:
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        return super().forward(input_ids=input_ids, **kwargs)


def of_class(of: type[PhiForCausalLM]) -> PhiForCausalLM:
    hf = of(tiny.config()).eval()
    hf.load_state_dict(tiny.plain().state_dict())
    return hf


def test_where_the_twin_cannot_run_the_model_itself_is_surveyed_and_left_as_it_was() -> None:
    hf = of_class(FailsOnMeta)
    state = torch.random.get_rng_state()
    buffers = {name: buffer.clone() for name, buffer in hf.named_buffers()}
    model = StandardizedTransformer(hf)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert not hf.training
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in hf.named_buffers())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in hf.modules())
    found = model.read(tiny.IDS, "layers.1.layer_output", "layers.1.self_attn.attention_probabilities", "logits")
    assert torch.equal(found["logits"], tiny.logits_of(hf))
    assert torch.equal(found["layers.1.layer_output"], raw.value(hf, tiny.as_inputs(tiny.IDS), "layer_output", 1))
    assert [row.value for row in model.support() if not row.available and not row.rare] == ["layer_mid"]


class Packed(nn.Parameter):
    """A parameter of a class of its own, which holds what its module needs beside the numbers, as bitsandbytes' do."""

    scale: float


class PackedLinear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = Packed(linear.weight.detach() / 2, requires_grad=False)
        self.weight.scale = 2.0
        self.bias = linear.bias

    def forward(self, input: Tensor) -> Tensor:
        if type(self.weight) is not Packed:
            raise AttributeError("'Parameter' object has no attribute 'scale'")
        return F.linear(input, self.weight * self.weight.scale, self.bias)


class Adapted(nn.Module):
    """A linear with a low-rank addition beside it, as peft has it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.base_layer = linear
        self.down = nn.Linear(linear.in_features, 2, bias=False)
        self.up = nn.Linear(2, linear.out_features, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return self.base_layer(input) + self.up(self.down(input))


def test_parameters_of_a_class_of_their_own_keep_it_in_the_survey() -> None:
    hf = tiny.fresh()
    hf.model.layers[1].mlp.fc1 = PackedLinear(hf.model.layers[1].mlp.fc1)
    model = StandardizedTransformer(hf)
    found = model.read(tiny.IDS, "layers.1.mlp.mlp_neurons", "logits")
    assert torch.equal(found["logits"], tiny.logits_of(hf))
    assert type(hf.model.layers[1].mlp.fc1.weight) is Packed
    assert found["layers.1.mlp.mlp_neurons"].shape == (3, 6, 128)


def test_adapters_beside_a_projection_stay_active() -> None:
    hf = tiny.fresh()
    torch.manual_seed(0)
    for name in ("q_proj", "dense"):
        setattr(hf.model.layers[1].self_attn, name, Adapted(getattr(hf.model.layers[1].self_attn, name)))
    model = StandardizedTransformer(hf)
    expected = tiny.logits_of(hf)
    assert not torch.equal(expected, tiny.logits_of(tiny.plain()))
    with model.trace(tiny.IDS):
        attention = model.layers[1].self_attn.attention_output
        assert torch.equal(attention, raw.value(hf, tiny.as_inputs(tiny.IDS), "attention_output", 1))
        model.layers[1].self_attn.attention_output += 1
        edited = model.logits
    assert torch.equal(
        edited, raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), "attention_output", 1, lambda value: value + 1)
    )
    assert torch.equal(tiny.logits_of(hf), expected)
