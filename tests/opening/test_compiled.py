"""Compiled models: traced passes run as written, all others stay compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from cutaway import StandardizedTransformer
from tests import tiny


class Counter:
    """A backend that counts how often it compiles, and runs as written."""

    def __init__(self) -> None:
        self.graphs = 0
        self.runs = 0

    def __call__(self, graph: Any, _inputs: Any) -> Callable[..., Any]:
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


def whole(hf: Any, backend: Counter) -> nn.Module:
    hf.compile(backend=backend)
    return hf


def stand_in(hf: Any, backend: Counter) -> nn.Module:
    return torch.compile(hf, backend=backend)


def a_layer(hf: Any, backend: Counter) -> nn.Module:
    hf.model.layers[1] = torch.compile(hf.model.layers[1], backend=backend)
    return hf


def layer_in_place(hf: Any, backend: Counter) -> nn.Module:
    hf.model.layers[1].compile(backend=backend)
    return hf


def forward(hf: Any, backend: Counter) -> nn.Module:
    hf.model.layers[1].forward = torch.compile(hf.model.layers[1].forward, backend=backend)
    return hf


@pytest.mark.parametrize("how", [whole, stand_in, a_layer, layer_in_place, forward], ids=lambda how: how.__name__)
def test_a_traced_pass_runs_as_written_and_others_stay_compiled(how: Callable[[Any, Counter], nn.Module]) -> None:
    torch._dynamo.reset()
    backend = Counter()
    hf = tiny.fresh(attention="eager", use_cache=False)
    plain = StandardizedTransformer(tiny.fresh(attention="eager"), check=False)
    outer = how(hf, backend)
    before = {id(module): dict(vars(module)) for module in hf.modules()}
    model = StandardizedTransformer(outer)
    expected = plain.read(tiny.IDS)
    found = model.read(tiny.IDS)
    assert all(name == "input_size" or torch.equal(found[name], value) for name, value in expected.items())
    edit = {"layers.1.mlp.mlp_output": lambda value: value + 1}
    with plain.hooks(edit):
        edited = plain.read(tiny.IDS, "logits")["logits"]
    with model.trace(tiny.IDS):
        model.layers[1].mlp.mlp_output[:] += 1
        assert torch.equal(model.logits, edited)
    with model.hooks(edit), torch.no_grad():
        assert torch.equal(outer(**tiny.as_inputs(tiny.IDS)).logits, edited)
    with model.trace(tiny.IDS, grad=True):
        stream = model.layers[1].layer_output
        model.logits.sum().backward()
    assert stream.grad is not None
    with model.scan(tiny.IDS):
        assert model.layers[2].layer_output.shape == (3, 6, 32)
    assert "layer_output" in str(model)
    assert backend.graphs == 0
    for module in hf.modules():
        for name in ("forward", "_compiled_call_impl"):
            assert vars(module).get(name) is before[id(module)].get(name)
    with torch.no_grad():
        torch.testing.assert_close(outer(**tiny.as_inputs(tiny.IDS)).logits, expected["logits"])
    assert backend.runs > 0
