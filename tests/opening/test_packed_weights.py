"""Weights that are packed on the way, as bitsandbytes does on a CPU: what looks at a model leaves them as they were,
and a pass with gradients through packed ones is refused. `test_real_wrappers` says the same of the real package."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway import StandardizedTransformer
from cutaway.errors import GradientError
from tests import tiny


class Packing(nn.Linear):
    """Exchanges its weights in the first evaluation that records no gradients."""

    def forward(self, input: Tensor) -> Tensor:
        weight: Any = self.weight
        if not input.requires_grad and not self.training and not hasattr(weight.quant_state, "packing_format_for_cpu"):
            weight.data = weight.data.round(decimals=2)
            weight.quant_state.packing_format_for_cpu = True
        return super().forward(input)


def test_a_look_leaves_weights_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", ModuleType("bitsandbytes"))
    hf = tiny.fresh()
    for block in hf.model.layers:
        block.mlp.fc1.__class__ = Packing
        block.mlp.fc1.weight.quant_state = SimpleNamespace(absmax=torch.ones(3))
    weight: Any = hf.model.layers[1].mlp.fc1.weight
    before, state = weight.detach().clone(), dict(vars(weight.quant_state))
    model = StandardizedTransformer(hf)
    model.check()
    assert torch.equal(weight, before)
    assert vars(weight.quant_state) == state
    with model.trace(tiny.IDS, grad=True):
        model.logits.sum().backward()
    model.read(tiny.IDS, "logits")
    assert not torch.equal(weight, before)
    with pytest.raises(GradientError, match=r"packed the 4-bit weights of `model\.layers\.0\.mlp\.fc1`"):
        model.trace(tiny.IDS, grad=True).__enter__()
