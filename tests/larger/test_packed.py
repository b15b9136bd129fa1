"""Quantised linears, by a stand-in: weights packed in uint8, of another shape, with a forward of their own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway import StandardizedTransformer
from tests import raw, tiny


class Packed(nn.Module):
    """Two 4-bit numbers a byte, one scale a row. Only its own forward can read them."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.scale = nn.Parameter(weight.abs().amax(dim=1, keepdim=True) / 7, requires_grad=False)
        levels = (weight / self.scale).round().clamp(-8, 7).to(torch.int16) + 8
        packed = (levels[:, ::2] * 16 + levels[:, 1::2]).to(torch.uint8)
        self.weight = nn.Parameter(packed.flatten()[:, None], requires_grad=False)
        self.bias = nn.Parameter(linear.bias.detach().clone(), requires_grad=False)

    def unpacked(self) -> Tensor:
        rows = self.weight.view(self.scale.shape[0], -1).to(torch.int16)
        levels = torch.stack([rows // 16, rows % 16], dim=-1).flatten(1) - 8
        return levels.to(self.scale.dtype) * self.scale

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.unpacked(), self.bias)


def packed_and_plain(kind: str = "P") -> tuple[Any, Any]:
    """A model with packed linears, and an ordinary one with the weights that they stand for."""
    hf = tiny.fresh(kind)
    plain = copy.deepcopy(hf)
    for name, module in list(hf.named_modules()):
        if isinstance(module, nn.Linear) and name != "lm_head":
            packed = Packed(module)
            hf.set_submodule(name, packed)
            with torch.no_grad():
                plain.get_submodule(name).weight.copy_(packed.unpacked())
    return hf.eval(), plain.eval()


@pytest.mark.parametrize("kind", ["P", "P-gqa"])
def test_every_value_passes_and_is_that_of_the_unpacked_weights(kind: str) -> None:
    hf, plain = packed_and_plain(kind)
    model = StandardizedTransformer(hf)
    found = model.read(tiny.IDS)
    for path, value in StandardizedTransformer(plain).read(tiny.IDS).items():
        assert found[path] == value if path == "input_size" else torch.equal(found[path], value), path
    for name in raw.WRITABLE[2:]:
        expected = raw.edited_logits(plain, tiny.as_inputs(tiny.IDS), name, 1, lambda value: value * 1.5)
        with model.hooks({raw.path_of(name, 1): lambda value: value * 1.5}):
            found = model.read(tiny.IDS, "logits")["logits"]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_calls_gradients_skips_scans_and_generation() -> None:
    hf, plain = packed_and_plain()
    model, other = StandardizedTransformer(hf), StandardizedTransformer(plain)
    weights = {name: parameter.clone() for name, parameter in hf.named_parameters()}
    with model.trace(tiny.IDS):
        unpacked = model.layers[1].mlp.fc1.source.self_unpacked_0.output
        assert torch.equal(unpacked, plain.model.layers[1].mlp.fc1.weight)
        logits = model.logits
    assert torch.equal(logits, other.read(tiny.IDS, "logits")["logits"])
    outcomes: list[list[Tensor]] = []
    for one in (model, other):
        with one.trace(tiny.IDS, grad=True):
            stream = one.layers[1].layer_output
            one.logits[:, -1, 3].sum().backward()
        with one.generate(tiny.IDS, max_new_tokens=4, do_sample=False) as run:
            for _ in run:
                one.layers[1].mlp.fc1.skip(one.layers[1].mlp.fc1.input.repeat(1, 1, 4))
        outcomes.append([stream.grad, run.output])
    torch.testing.assert_close(*outcomes)
    with model.scan(tiny.IDS):
        assert model.layers[2].mlp.mlp_neurons.shape == (3, 6, 128)
    assert all(torch.equal(parameter, weights[name]) for name, parameter in hf.named_parameters())
    assert "Packed" in str(model)
