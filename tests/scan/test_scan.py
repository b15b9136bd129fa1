"""`scan`: shapes and dtypes with no weights and no compute, and errors at the user's own line."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch

from cutaway import StandardizedTransformer
from cutaway.errors import NoTraceError, OrderError, ShapeError, UnavailableValueError
from tests import tiny
from tests.families import models
from tests.generation.test_steps import both, hooks_of

KINDS = pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
PROMPT = [[61, 17], [7, 7, 1, 40, 8], [50, 4, 12, 29]]


def at(model: Any, path: str) -> Any:
    host: Any = model
    for part in path.split("."):
        host = host[int(part)] if part.isdigit() else getattr(host, part)
    return host


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_values_shape_and_dtype_are_those_of_the_real_pass(kind: str, dtype: torch.dtype) -> None:
    model = tiny.shared("P", "sdpa", dtype) if kind == "phi" else models.wrapped(kind, "sdpa", dtype)
    real = model.read(PROMPT)
    with model.scan(PROMPT):
        scanned = {path: at(model, path) for path in real}
    for path, value in real.items():
        found = scanned[path]
        if path == "input_size":
            assert found == value
            continue
        assert found.shape == value.shape, path
        assert found.device.type == "meta"
        assert found.dtype == value.dtype, path


def test_nothing_is_computed_and_no_weight_is_touched() -> None:
    hf, model = tiny.plain(), tiny.shared()
    before, hooks = [parameter.data_ptr() for parameter in hf.parameters()], hooks_of(hf)
    ran: list[int] = []
    handles = [module.register_forward_hook(lambda *_: ran.append(1)) for module in hf.modules()]
    with model.scan(PROMPT):
        model.layers[1].layer_output += 1
        model.layers[2].mlp.skip()
        model.logits
    for handle in handles:
        handle.remove()
    assert not ran
    assert [parameter.data_ptr() for parameter in hf.parameters()] == before
    assert hooks_of(hf) == hooks
    assert torch.equal(tiny.logits_of(hf), model.read(tiny.IDS, "logits")["logits"])


def test_an_error_of_shape_is_at_the_users_own_line() -> None:
    model = tiny.shared()
    with pytest.raises(RuntimeError) as caught:
        with model.scan(PROMPT):
            stream = model.layers[1].layer_output
            stream @ torch.zeros(31, 4)  # the wrong width
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == __file__]
    assert "the wrong width" in lines[-1]
    with pytest.raises(ShapeError, match=r"\[3, 5, 32\]"), model.scan(PROMPT):
        model.layers[1].layer_output = torch.zeros(3, 4, 32)
    with pytest.raises(RuntimeError), model.scan(PROMPT):
        model.layers[1].layer_output[:, 0] = torch.zeros(31)
    with pytest.raises(ShapeError), model.scan(PROMPT):
        model.layers[1].mlp.skip(torch.zeros(3, 4, 32))


def test_the_users_own_arithmetic_is_scanned_with_tensors_from_anywhere() -> None:
    model = tiny.shared()
    vector, matrix, module = torch.ones(32), torch.ones(32, 7), torch.nn.Linear(32, 5)

    def body() -> list[torch.Tensor]:
        stream = model.layers[0].layer_output
        found = [stream + vector, stream @ matrix, module(stream), model.project_on_vocab(stream)]
        stream[:, 1] = vector
        model.layers[1].mlp.mlp_output = model.layers[1].mlp.mlp_output * 0.5 + vector
        model.layers[2].mlp.skip(torch.zeros(3, 5, 32))
        return [*found, model.layers[2].layer_output.norm(dim=-1), model.next_token_probs.topk(3).values]

    with model.scan(PROMPT):
        scanned = body()
    with model.trace(PROMPT):
        real = body()
    for one, other in zip(scanned, real, strict=True):
        assert one.is_meta
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert not (vector + 1).is_meta
    assert torch._C._len_torch_function_stack() == 0


def test_calls_inside_a_forward_are_scanned() -> None:
    model = tiny.shared()
    with model.scan(PROMPT):
        assert model.layers[1].self_attn.source.self_q_proj_0.output.shape == (3, 5, 32)


@KINDS
def test_a_config_without_weights_is_scanned(kind: str) -> None:
    config = tiny.config() if kind == "phi" else models.CONFIGS[kind]()
    model = StandardizedTransformer(config, dispatch=False)
    with model.scan(PROMPT):
        assert model.layers[2].self_attn.attention_probabilities.shape == (3, 4, 5, 5)
        assert model.logits.shape == (3, 5, 64)
    assert not model._subject.has_weights


def test_the_shipped_phi_2_is_scanned_without_its_weights() -> None:
    model = StandardizedTransformer("microsoft/phi-2", dispatch=False)
    with model.scan([[5, 9, 33], [2, 61, 17]]):
        queries = model.layers[16].self_attn.attention_queries
        neurons = model.layers[31].mlp.mlp_neurons
        logits = model.logits
    assert queries.shape == (2, 32, 3, 80)
    assert neurons.shape == (2, 3, 10240)
    assert logits.shape == (2, 3, 51200)
    assert {t.dtype for t in (queries, neurons, logits)} == {torch.float16}
    assert next(model.hf.parameters()).is_meta


def test_order_and_names_hold_as_in_a_trace() -> None:
    model = tiny.shared()
    with pytest.raises(OrderError, match=r"layers\.0\.layer_output"), model.scan(PROMPT):
        model.layers[1].layer_output
        model.layers[0].layer_output
    with pytest.raises(UnavailableValueError, match="parallel"), model.scan(PROMPT):
        model.layers[1].layer_mid
    with pytest.raises(NoTraceError):
        model.logits
    assert torch._C._len_torch_function_stack() == 0


def test_the_edits_of_an_edited_model_are_scanned() -> None:
    model = tiny.shared()
    seen: list[torch.Tensor] = []

    def note(value: torch.Tensor) -> torch.Tensor:
        seen.append(value)
        return value + 1

    edited = model.edited({"layers.1.layer_output": note}, positions=[1])
    with edited.scan(PROMPT):
        assert edited.logits.shape == (3, 5, 64)
    assert [tuple(value.shape) for value in seen] == [(3, 5, 32)]
    assert seen[0].is_meta
    cut = model.edited({"layers.1.layer_output": lambda value: value[:, :2]})
    with pytest.raises(ShapeError, match=r"layers\.1\.layer_output"), cut.scan(PROMPT):
        cut.logits


@KINDS
def test_scanning_leaves_the_model_as_it_was(kind: str) -> None:
    hf, model = both(kind)
    expected = hf(tiny.IDS).logits
    with pytest.raises(ZeroDivisionError), model.scan(PROMPT):
        model.layers[0].layer_output
        raise ZeroDivisionError
    assert model.hf.config._attn_implementation == "sdpa"
    assert torch.equal(model.hf(tiny.IDS).logits, expected)
