"""Weights spread over devices and disk by accelerate: the same values as with all in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from cutaway.errors import DeviceError, NoWeightsError
from tests import raw, tiny

pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning:accelerate")

ON_DISK = {
    "model.embed_tokens": "cpu",
    "model.rotary_emb": "cpu",
    "model.layers.0": "cpu",
    "model.layers.1": "disk",
    "model.layers.2": "disk",
    "model.final_layernorm": "cpu",
    "lm_head": "cpu",
}
ALL_ON_DISK = {**dict.fromkeys(ON_DISK, "disk"), "model.rotary_emb": "cpu", "model.layers.0": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("phi")
    tiny.plain().save_pretrained(place)
    return place


@pytest.fixture(scope="module", params=["disk", "embedding and head on disk", "cpu_offload"])
def model(request: pytest.FixtureRequest, folder: Path) -> Iterator[StandardizedTransformer]:
    if request.param == "cpu_offload":
        from accelerate import cpu_offload

        hf = tiny.fresh()
        cpu_offload(hf, execution_device=torch.device("cpu"))
        yield StandardizedTransformer(hf)
        return
    places = ON_DISK if request.param == "disk" else ALL_ON_DISK
    offloaded = folder / request.param.replace(" ", "-")
    yield StandardizedTransformer(str(folder), device_map=places, offload_folder=str(offloaded))


def state_of(hf: Any) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, module in hf.named_modules():
        for key in ("forward", "_old_forward"):
            state[f"{name}.{key}"] = module.__dict__.get(key)
        state[f"{name} hooks"] = (list(module._forward_hooks), list(module._forward_pre_hooks))
        state[f"{name} devices"] = [p.device.type for p in module.parameters(recurse=False)]
    return state


def test_its_layers_are_not_in_memory(model: StandardizedTransformer) -> None:
    assert next(model.hf.model.layers[1].parameters()).is_meta


def test_every_value_is_that_of_the_model_in_memory(model: StandardizedTransformer) -> None:
    before = state_of(model.hf)
    expected, found = tiny.shared().read(tiny.IDS), model.read(tiny.IDS)
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        assert found[path] == value if path == "input_size" else torch.equal(found[path], value), path
    assert state_of(model.hf) == before


def test_weights_and_head_contributions_are_those_of_the_model_in_memory(model: StandardizedTransformer) -> None:
    before, plain = state_of(model.hf), tiny.shared()
    for layer, other in zip(model.layers, plain.layers, strict=True):
        for name in ("W_Q", "b_Q", "W_O"):
            assert torch.equal(getattr(layer.self_attn, name), getattr(other.self_attn, name))
        assert torch.equal(layer.mlp.W_in, other.mlp.W_in)
    expected, found = (one.read(tiny.IDS, "head_contributions") for one in (plain, model))
    assert all(torch.equal(found[path], value) for path, value in expected.items())
    assert state_of(model.hf) == before


@pytest.mark.parametrize(
    "name", ["token_embeddings", "attention_keys", "attention_scores", "mlp_neurons", "mlp_output"]
)
def test_edits_are_those_of_a_raw_hook_on_the_model_in_memory(model: StandardizedTransformer, name: str) -> None:
    hf = tiny.plain()
    change = torch.linspace(-1, 1, raw.value(hf, tiny.as_inputs(tiny.IDS), name, 1).shape[-1])
    expected = raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), name, 1, lambda value: value + change)
    with model.hooks({raw.path_of(name, 1): lambda value: value + change}):
        found = model.read(tiny.IDS, "logits")["logits"]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_calls_skips_gradients_and_generation(model: StandardizedTransformer) -> None:
    hf, inputs = tiny.plain(), tiny.as_inputs(tiny.IDS)
    before = state_of(model.hf)
    with model.trace(tiny.IDS):
        norm = model.layers[1].source.self_input_layernorm_0.output
        queries = model.layers[1].self_attn.source.self_q_proj_0.output
        linear = model.layers[1].mlp.fc1.source.F_linear_0.output
        assert torch.equal(model.logits, tiny.logits_of(hf))
    assert torch.equal(norm, raw.value(hf, inputs, "attention_norm_output", 1))
    with torch.no_grad():
        assert torch.equal(queries, hf.model.layers[1].self_attn.q_proj(norm))
        assert torch.equal(linear, hf.model.layers[1].mlp.fc1(norm))

    def outcome(model: StandardizedTransformer) -> list[Tensor]:
        with model.trace(tiny.IDS):
            model.layers[1].mlp.skip()
            skipped = model.logits
        with model.trace(tiny.IDS, grad=True):
            stream = model.layers[2].layer_input
            model.logits[:, -1, 3].sum().backward()
        with model.generate(tiny.IDS, max_new_tokens=3, do_sample=False) as run:
            for _ in run:
                model.layers[2].layer_output *= 2
        with model.steer(1, torch.ones(32).cumsum(0)):
            steered = model.read(tiny.IDS, "logits")["logits"]
        return [skipped, stream.grad, run.output, steered, model.project_on_vocab(stream.detach())]

    for one, other in zip(outcome(model), outcome(tiny.shared()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert state_of(model.hf) == before
    hf.zero_grad()


def test_a_pass_left_in_the_middle_or_by_an_error_puts_the_weights_away(model: StandardizedTransformer) -> None:
    before = state_of(model.hf)
    with model.trace(tiny.IDS):
        model.layers[1].mlp.fc1.output
    assert state_of(model.hf) == before
    with pytest.raises(ZeroDivisionError), model.trace(tiny.IDS):
        model.layers[1].self_attn.q_proj.source.F_linear_0.output
        raise ZeroDivisionError
    # An error inside a leaf leaves that leaf's weights with accelerate until it next runs.
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(tiny.plain()))
    assert state_of(model.hf) == before


def test_it_prints_scans_and_tells_its_support(model: StandardizedTransformer) -> None:
    assert "(o_proj/dense)" in str(model)
    assert {row.value: row.available for row in model.support()} == {
        row.value: row.available for row in tiny.shared().support()
    }
    with model.scan(tiny.IDS):
        assert model.logits.shape == (3, 6, 64)


def test_a_device_map_left_to_accelerate(folder: Path) -> None:
    model = StandardizedTransformer(str(folder), device_map="auto")
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"].cpu(), tiny.logits_of(tiny.plain()))


def test_a_tensor_on_another_device_is_refused_by_name() -> None:
    model = tiny.shared()
    for value in ("layers.1.layer_output", "layers.1.self_attn.attention_queries", "logits"):
        elsewhere = torch.empty_like(model.read(tiny.IDS, value)[value], device="meta")
        with pytest.raises(DeviceError, match=r"on cpu; it was given a tensor on meta"):
            with model.hooks({value: lambda _, new=elsewhere: new}):
                model.read(tiny.IDS, "logits")


def test_a_model_without_weights_and_without_a_place_to_get_them_says_so() -> None:
    with torch.device("meta"):
        hf = type(tiny.plain())(tiny.config()).eval()
    with pytest.raises(NoWeightsError, match="has no weights"):
        StandardizedTransformer(hf).read(tiny.IDS, "logits")
