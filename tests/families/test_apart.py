"""Families with experts and mixers against raw hooks: each value, an edit of each, generation, and opening."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from cutaway import StandardizedTransformer
from cutaway.vocabulary import VALUES
from tests.families import apart
from tests.families.models import APART, CONFIGS, IDS, build, left_padded
from tests.families.native import INTERIOR

ALL = {**CONFIGS, **APART}
KINDS = pytest.mark.parametrize("kind", apart.LAYERS)
LAYERS = pytest.mark.parametrize(("kind", "layer"), [(kind, at) for kind, some in apart.LAYERS.items() for at in some])


@lru_cache(maxsize=2)
def model_of(kind: str) -> tuple[PreTrainedModel, StandardizedTransformer]:
    """The plain model under eager attention, of which every step can be rebuilt, and the same wrapped."""
    hf = build(ALL[kind](), "eager")
    return hf, StandardizedTransformer(hf, check=False)


def names_of(kind: str, layer: int) -> list[str]:
    return [*apart.rows_of(kind, layer), *(INTERIOR if layer in apart.ATTENDS[kind] else ())]


def path_of(name: str, layer: int) -> str:
    host = {"attention": "self_attn.", "mixer": "mixer.", "mlp": "mlp."}.get(VALUES[name].host, "")
    return f"layers.{layer}.{host}{name}"


def logits(hf: Any) -> Tensor:
    with torch.no_grad():
        return hf(input_ids=IDS).logits


@LAYERS
def test_every_value_is_what_a_raw_hook_sees(kind: str, layer: int) -> None:
    hf, model = model_of(kind)
    for name in names_of(kind, layer):
        path = path_of(name, layer)
        found, expected = model.read(IDS, path)[path], apart.value(hf, kind, lambda: logits(hf), name, layer)
        assert found.shape == expected.shape, name
        assert torch.equal(found, expected), name


@LAYERS
def test_there_is_no_value_beside_these(kind: str, layer: int) -> None:
    _, model = model_of(kind)
    at = f"layers.{layer}."
    found = {path.rpartition(".")[2] for path in model.read(IDS) if path.startswith(at)}
    rest = {"attention_sinks"} if kind == "gpt_oss" else set()
    assert found == {*names_of(kind, layer), *rest}


@LAYERS
def test_an_edit_does_what_the_same_edit_by_a_raw_hook_does(kind: str, layer: int) -> None:
    hf, model = model_of(kind)
    untouched = logits(hf)
    names = [name for name in names_of(kind, layer) if not VALUES[name].read_only]
    assert len(names) >= 4
    for name in names:
        with apart.edited(hf, kind, name, layer, _edit):
            expected = logits(hf)
        with model.hooks({path_of(name, layer): _edit}):
            found = model.read(IDS, "logits")["logits"]
        assert not torch.equal(expected, untouched), name
        assert torch.equal(found, expected), name


def _edit(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        return (value + 1) % 4
    return value + torch.linspace(-1, 1, value[0].numel()).view(value[0].shape).to(value.dtype)


@KINDS
def test_the_block_is_the_sum_of_its_terms(kind: str) -> None:
    _, model = model_of(kind)
    values = model.read(left_padded())
    for layer in range(model.num_layers):
        total = values[f"layers.{layer}.layer_input"]
        for name in ("attention_output", "mixer_output", "mlp_output"):
            total = total + values.get(path_of(name, layer), 0)
        assert torch.equal(total, values[f"layers.{layer}.layer_output"])


@KINDS
def test_generation_with_values_read_at_each_step_is_plain_generation(kind: str) -> None:
    hf, model = model_of(kind)
    any_hf: Any = hf
    expected = any_hf.generate(IDS, max_new_tokens=4, do_sample=False)
    seen = []
    with model.generate(IDS, max_new_tokens=4, do_sample=False) as run:
        for _ in run:
            seen += [layer.layer_output.shape[1] for layer in model.layers]
    assert torch.equal(run.sequences, expected)
    assert seen == [6] * model.num_layers + [1] * 3 * model.num_layers


@KINDS
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_traced_pass_is_the_plain_one_in_bfloat16_and_keeps_its_check(kind: str, attention: str) -> None:
    if kind in ("gpt_oss", "mamba2") and attention == "sdpa":
        pytest.skip("transformers has no sdpa for it")
    hf: Any = build(ALL[kind](), attention, torch.bfloat16)
    model = StandardizedTransformer(hf)
    for inputs in ({"input_ids": IDS}, left_padded()):
        with torch.no_grad():
            expected = hf(**inputs).logits
        read = model.read(inputs)
        assert torch.equal(read["logits"], expected)
    assert StandardizedTransformer(ALL[kind](), dispatch=False).check()


@KINDS
def test_a_model_without_a_head_is_served_by_the_same_file(kind: str) -> None:
    hf: Any = AutoModel.from_config(ALL[kind]()).eval()
    model = StandardizedTransformer(hf)
    assert not model._subject.family.derived
    assert not model.support()["logits"].available
    with torch.no_grad():
        expected = hf(input_ids=IDS).last_hidden_state
    assert torch.equal(model.read(IDS, "final_norm_output")["final_norm_output"], expected)
