"""Models that were changed by hand: shared, wrapped, exchanged, cut and appended modules, against raw hooks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PhiForCausalLM

from cutaway import StandardizedTransformer
from cutaway.errors import LoadError, UnavailableValueError
from tests import tiny
from tests.families import models

INPUTS = tiny.as_inputs(tiny.IDS)


class Wrapper(nn.Module):
    """Calls what it holds, as a gate or a probe does."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


class OwnAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(32, 32)

    def forward(self, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
        return self.mix(hidden_states), None


def eager() -> Any:
    return tiny.fresh(attention="eager", use_cache=False)


def shared_activation(hf: Any) -> list[tuple[str, int]]:
    act = nn.GELU()
    for layer in hf.model.layers:
        layer.mlp.activation_fn = act
    return [(f"layers.{i}.mlp.mlp_activation", i) for i in range(3)]


def shared_mlp(hf: Any) -> list[tuple[str, int]]:
    hf.model.layers[2].mlp = hf.model.layers[0].mlp
    return [("layers.0.mlp.mlp_output", 0), ("layers.2.mlp.mlp_output", 1)]


def shared_attention(hf: Any) -> list[tuple[str, int]]:
    hf.model.layers[2].self_attn = hf.model.layers[0].self_attn
    return [("layers.0.self_attn.attention_output", 0), ("layers.2.self_attn.attention_output", 1)]


def layer_twice(hf: Any) -> list[tuple[str, int]]:
    hf.model.layers[2] = hf.model.layers[0]
    return [("layers.0.layer_output", 0), ("layers.2.layer_output", 1)]


def shared_norm(hf: Any) -> list[tuple[str, int]]:
    hf.model.layers[1].input_layernorm = hf.model.layers[0].input_layernorm
    hf.model.final_layernorm = hf.model.layers[0].input_layernorm
    return [("layers.0.attention_norm_output", 0), ("layers.1.attention_norm_output", 1), ("final_norm_output", 2)]


@pytest.mark.parametrize(
    "share",
    [shared_activation, shared_mlp, shared_attention, layer_twice, shared_norm],
    ids=lambda share: share.__name__,
)
def test_each_value_of_a_shared_module_is_that_of_its_own_call(share: Callable[[Any], list[tuple[str, int]]]) -> None:
    hf = eager()
    expected = share(hf)
    model = StandardizedTransformer(hf, check=False)
    assert "layer_output" in str(model)
    path, last = expected[-1]
    address = model._subject.modules[_own_path(path)]
    seen: list[Tensor] = []

    def note(_module: nn.Module, _args: Any, output: Any) -> None:
        seen.append((output[0] if isinstance(output, tuple) else output).clone())

    handle = address.register_forward_hook(note)
    plain = tiny.logits_of(hf)
    handle.remove()
    found = model.read(tiny.IDS)
    assert torch.equal(found["logits"], plain)
    for name, call in expected:
        assert torch.equal(found[name], seen[call]), name
    calls = [0]

    def edit(_module: nn.Module, _args: Any, output: Any) -> Any:
        calls[0] += 1
        if calls[0] != last + 1:
            return None
        return (output[0] + 1, *output[1:]) if isinstance(output, tuple) else output + 1

    handle = address.register_forward_hook(edit)
    edited = tiny.logits_of(hf)
    handle.remove()
    assert not torch.equal(edited, plain)
    with model.hooks({path: lambda value: value + 1}):
        assert torch.equal(model.read(tiny.IDS, "logits")["logits"], edited)
        assert torch.equal(tiny.logits_of(hf), edited)
    with model.trace(tiny.IDS):
        host = model
        for part in path.split(".")[:-1]:
            host = host[int(part)] if part.isdigit() else getattr(host, part)
        name = path.rpartition(".")[2]
        setattr(host, name, getattr(host, name) + 1)
        assert torch.equal(model.logits, edited)
    assert torch.equal(tiny.logits_of(hf), plain)


def _own_path(path: str) -> str:
    own = {
        "mlp_activation": "mlp.activation_fn",
        "mlp_output": "mlp",
        "attention_output": "self_attn",
        "layer_output": "",
        "attention_norm_output": "input_layernorm",
        "final_norm_output": "model.final_layernorm",
    }[path.rpartition(".")[2]]
    return own if path == "final_norm_output" else ".".join(filter(None, (f"model.layers.{path.split('.')[1]}", own)))


def test_wrapped_modules_are_looked_through() -> None:
    hf = eager()
    expected = StandardizedTransformer(eager(), check=False).read(tiny.IDS)
    layers = hf.model.layers
    layers[1] = Wrapper(layers[1])
    layers[0].mlp = Wrapper(Wrapper(layers[0].mlp))
    layers[2].self_attn = Wrapper(layers[2].self_attn)
    model = StandardizedTransformer(hf)
    found = model.read(tiny.IDS)
    assert found.keys() == expected.keys()
    assert all(name == "input_size" or torch.equal(found[name], value) for name, value in expected.items())
    assert model.layers[1].self_attn.o_proj.module is layers[1].inner.self_attn.dense
    seen: list[Tensor] = []
    handle = layers[1].inner.self_attn.dense.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    tiny.logits_of(hf)
    handle.remove()
    assert torch.equal(found["layers.1.self_attn.attention_premix"].flatten(-2), seen[0])


@pytest.mark.parametrize("instead", [lambda: nn.Linear(32, 32), nn.Identity], ids=["linear", "identity"])
def test_an_exchanged_mlp_has_its_output_and_a_reason_for_the_rest(instead: Callable[[], nn.Module]) -> None:
    hf = eager()
    hf.model.layers[1].mlp = instead()
    model = StandardizedTransformer(hf)
    kind = type(hf.model.layers[1].mlp).__name__
    says = rf"`layers\.1\.mlp` is a {kind} here, which has no module `fc2`"
    seen: list[Tensor] = []
    handle = hf.model.layers[1].mlp.register_forward_hook(lambda _m, _args, output: seen.append(output))
    plain = tiny.logits_of(hf)
    handle.remove()
    found = model.read(tiny.IDS, "layers.1.mlp.mlp_output", "logits")
    assert torch.equal(found["layers.1.mlp.mlp_output"], seen[0])
    assert torch.equal(found["logits"], plain)
    with pytest.raises(UnavailableValueError, match=says):
        model.read(tiny.IDS, "layers.1.mlp.mlp_neurons")
    with pytest.raises(UnavailableValueError, match=says), model.trace(tiny.IDS):
        model.layers[1].mlp.mlp_neurons
    with pytest.raises(UnavailableValueError, match=says):
        model.layers[1].mlp.down_proj
    assert list(model.read(tiny.IDS, "mlp_neurons")) == ["layers.0.mlp.mlp_neurons", "layers.2.mlp.mlp_neurons"]
    assert kind in " ".join(str(model).split())
    assert model.support()["mlp_neurons"].layers == (0, 2)


def test_an_exchanged_attention_has_no_interior() -> None:
    hf = eager()
    hf.model.layers[1].self_attn = OwnAttention()
    model = StandardizedTransformer(hf)
    with pytest.raises(UnavailableValueError, match="a OwnAttention here, which does not call attention through"):
        model.read(tiny.IDS, "layers.1.self_attn.attention_queries")
    assert "layers.1.self_attn.attention_output" in model.read(tiny.IDS)


@pytest.mark.parametrize("kind", ["cut", "cut and counted", "counted", "appended", "gpt2 cut", "gpt2 appended"])
def test_layers_cut_off_and_appended(kind: str) -> None:
    hf: Any = models.build(models.gpt2()) if kind.startswith("gpt2") else eager()
    holder, name = (hf.transformer, "h") if kind.startswith("gpt2") else (hf.model, "layers")
    blocks = getattr(holder, name)
    if "cut" in kind:
        setattr(holder, name, blocks[:2])
    if "counted" in kind:
        hf.config.num_hidden_layers = 2
    if "appended" in kind:
        blocks.append(copy.deepcopy(blocks[0]))
    model = StandardizedTransformer(hf, check=False)
    assert model.num_layers == len(getattr(holder, name))
    str(model), model.support(), model._repr_html_()
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(hf))
    run = {"cut": 2, "cut and counted": 2, "counted": 2, "appended": 3, "gpt2 cut": 2, "gpt2 appended": 4}[kind]
    assert model.support()["layer_output"].layers == tuple(range(run))
    if run < model.num_layers:
        with pytest.raises(UnavailableValueError, match=f"does not come by it.*The config counts {run} layers"):
            model.read(tiny.IDS, f"layers.{run}.layer_output")


def test_a_subclass_is_served_by_the_file_of_what_it_derives_from() -> None:
    class OwnPhi(PhiForCausalLM):
        pass

    hf = OwnPhi(tiny.config()).eval()
    assert torch.equal(StandardizedTransformer(hf).read(tiny.IDS, "logits")["logits"], tiny.logits_of(hf))


def test_what_wraps_a_model_is_taken_off_or_named() -> None:
    hf = eager()
    model = StandardizedTransformer(nn.DataParallel(hf), check=False)
    assert model.hf is hf
    with pytest.raises(
        LoadError, match=r"a Wrapper is no transformers model. It holds one at `\.inner`: give that one"
    ):
        StandardizedTransformer(Wrapper(hf))
