"""One language of names: what raw hooks see at a module is what `read` gives for every spelling of its name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cutaway.errors import NotReadError, UnavailableValueError, UnknownLayerError, UnknownValueError
from tests import tiny
from tests.families import models

KINDS = ("llama", "gpt2", "neox")
BLOCKS = {"llama": "model.layers", "gpt2": "transformer.h", "neox": "gpt_neox.layers"}


def module_output(hf: nn.Module, path: str, inputs: Tensor = models.IDS) -> Any:
    """A module's output in a plain pass, by a raw hook."""
    seen: list[Any] = []
    handle = hf.get_submodule(path).register_forward_hook(lambda _m, _a, out: seen.append(out))
    try:
        with torch.no_grad():
            hf(inputs)
    finally:
        handle.remove()
    assert len(seen) == 1
    return seen[0]


# Of each family: the spellings of a module's output, its path by which it is handed out, and its own path.
MODULES = [
    ("llama", "layers.1.mlp.down_proj.output", "layers.1.mlp.down_proj.output", "model.layers.1.mlp.down_proj"),
    ("llama", "model.layers.1.mlp.down_proj.output", "layers.1.mlp.down_proj.output", "model.layers.1.mlp.down_proj"),
    ("llama", "layers.-2.mlp.up_proj.output", "layers.1.mlp.up_proj.output", "model.layers.1.mlp.up_proj"),
    ("llama", "model.layers[-2].mlp.up_proj.output", "layers.1.mlp.up_proj.output", "model.layers.1.mlp.up_proj"),
    ("llama", "norm.output", "norm.output", "model.norm"),
    ("llama", "model.norm.output", "norm.output", "model.norm"),
    ("gpt2", "layers.2.mlp.down_proj.output", "layers.2.mlp.down_proj.output", "transformer.h.2.mlp.c_proj"),
    ("gpt2", "layers.2.mlp.c_proj.output", "layers.2.mlp.down_proj.output", "transformer.h.2.mlp.c_proj"),
    ("gpt2", "transformer.h.2.mlp.c_proj.output", "layers.2.mlp.down_proj.output", "transformer.h.2.mlp.c_proj"),
    ("gpt2", "transformer.h.-1.attn.c_attn.output", "layers.2.self_attn.c_attn.output", "transformer.h.2.attn.c_attn"),
    ("gpt2", "layers.2.attn.c_attn.output", "layers.2.self_attn.c_attn.output", "transformer.h.2.attn.c_attn"),
    ("gpt2", "transformer.wpe.output", "transformer.wpe.output", "transformer.wpe"),
    ("gpt2", "model.layers[2].mlp.c_fc.output", "layers.2.mlp.c_fc.output", "transformer.h.2.mlp.c_fc"),
    ("neox", "layers[0].self_attn.o_proj.output", "layers.0.self_attn.o_proj.output",
     "gpt_neox.layers.0.attention.dense"),
    ("neox", "layers.0.attention.dense.output", "layers.0.self_attn.o_proj.output",
     "gpt_neox.layers.0.attention.dense"),
    ("neox", "gpt_neox.layers.0.attention.query_key_value.output", "layers.0.self_attn.query_key_value.output",
     "gpt_neox.layers.0.attention.query_key_value"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "path", "own"), MODULES)
def test_a_module_by_every_name_it_has(kind: str, name: str, path: str, own: str) -> None:
    found = models.wrapped(kind).read(models.IDS, name)
    assert list(found) == [path]
    assert torch.equal(found[name], module_output(models.plain(kind), own))
    assert found[name] is found[path]
    assert name in found


@pytest.mark.parametrize("kind", KINDS)
def test_a_pattern_picks_the_module_on_each_layer_and_hooks_take_it_too(kind: str) -> None:
    model = models.wrapped(kind)
    hf = model.hf
    block = BLOCKS[kind]
    mlp = "mlp.down_proj" if kind == "llama" else "mlp.c_proj" if kind == "gpt2" else "mlp.dense_4h_to_h"
    expected = [module_output(hf, f"{block}.{layer}.{mlp}") for layer in range(3)]
    paths = [f"layers.{layer}.mlp.down_proj.output" for layer in range(3)]
    native = f"{block}.*.{mlp}.output"
    slices = "layers[:].mlp.down_proj.output"
    for name in ("layers.*.mlp.down_proj.output", native, "**.down_proj.output", "*.down_proj.output", slices):
        found = model.read(models.IDS, name)
        assert list(found) == paths, name
        assert all(torch.equal(value, raw) for value, raw in zip(found.values(), expected, strict=True))
        assert list(found[name]) == paths
    handles = [
        hf.get_submodule(f"{block}.{i}.{mlp}").register_forward_hook(lambda _m, _a, out: out + 1) for i in (0, 1)
    ]
    with torch.no_grad():
        edited = hf(models.IDS).logits
    for handle in handles:
        handle.remove()
    for name in ("layers.0:2.mlp.down_proj.output", f"{block}[:-1].{mlp}.output"):
        with model.hooks({name: lambda value: value + 1}), torch.no_grad():
            assert torch.equal(hf(models.IDS).logits, edited)
        assert torch.equal(model.edited({name: lambda value: value + 1}).read(models.IDS, "logits")["logits"], edited)


def test_a_star_is_one_part_of_a_modules_path_and_anything_in_a_values() -> None:
    model = tiny.shared()
    assert list(model.read(tiny.IDS, "layers.*.output")) == [f"layers.{i}.output" for i in range(tiny.LAYERS)]
    inside = model.read(tiny.IDS, "layers.0.mlp.*.output")
    assert list(inside) == [f"layers.0.mlp.{name}.output" for name in ("fc1", "act_fn", "down_proj")]
    assert list(model.read(tiny.IDS, "layers.*.mlp_output")) == list(model.read(tiny.IDS, "mlp_output"))


def test_values_under_the_familys_own_names_of_hosts() -> None:
    model = models.wrapped("gpt2")
    expected = model.read(models.IDS, "layers.1.self_attn.attention_probabilities")
    for name in ("transformer.h.1.attn.attention_probabilities", "model.layers[1].self_attn.attention_probabilities"):
        assert torch.equal(*(found.popitem()[1] for found in (model.read(models.IDS, name), expected.copy())))
    assert list(model.read(models.IDS, "transformer.h.*.mlp.mlp_output")) == [
        f"layers.{i}.mlp.mlp_output" for i in range(3)
    ]
    assert list(model.read(models.IDS, "model.logits")) == ["logits"]


def test_calls_inside_a_forward_in_read_and_hooks() -> None:
    hf, model = tiny.plain(), tiny.shared()
    queries = [module_output(hf, f"model.layers.{i}.self_attn.q_proj", tiny.IDS) for i in range(tiny.LAYERS)]
    found = model.read(tiny.IDS, "layers.-1.self_attn.source.self_q_proj_0.output", "layers.0.mlp_input", "logits")
    assert list(found) == ["layers.0.mlp_input", "layers.2.self_attn.source.self_q_proj_0.output", "logits"]
    assert torch.equal(found["layers.-1.self_attn.source.self_q_proj_0.output"], queries[2])
    found = model.read(tiny.IDS, "layers.*.self_attn.source.self_q_proj_0.output")
    assert all(torch.equal(value, raw) for value, raw in zip(found.values(), queries, strict=True))
    inside = "attention_interface_0.source.torch_nn_functional_scaled_dot_product_attention_0"
    nested = f"layers.1.self_attn.source.{inside}.output"
    assert list(model.read(tiny.IDS, nested)) == [nested]
    handle = hf.model.layers[1].self_attn.q_proj.register_forward_hook(lambda _m, _a, out: out + 1)
    expected = tiny.logits_of(hf)
    handle.remove()
    with model.hooks({"layers.1.self_attn.source.self_q_proj_0.output": lambda value: value + 1}):
        assert torch.equal(tiny.logits_of(hf), expected)


def test_inputs_and_outputs_as_the_module_has_them() -> None:
    hf, model = tiny.plain(), tiny.shared()
    found = model.read(
        tiny.IDS, "layers.1.self_attn.output", "layers.1.self_attn.inputs", "layers.1.mlp.input", "output"
    )
    order = ["layers.1.self_attn.inputs", "layers.1.self_attn.output", "layers.1.mlp.input", "output"]
    assert list(found) == order
    assert torch.equal(
        found["layers.1.self_attn.output"][0], module_output(hf, "model.layers.1.self_attn", tiny.IDS)[0]
    )
    assert torch.equal(found["output"].logits, tiny.logits_of(hf))
    assert torch.equal(found["layers.1.self_attn.inputs"][1]["hidden_states"], found["layers.1.mlp.input"])


def test_order_duplicates_and_overlaps_give_each_thing_once() -> None:
    model = tiny.shared()
    names = ["logits", "layers.-1.layer_output", "layers.*.layer_output", lambda path: path == "layers.2.layer_output",
             "layers.0.mlp.fc2.output", "layers.0.mlp.down_proj.output", "layers.0.mlp.*.output"]  # fmt: skip
    found = model.read(tiny.IDS, *names)
    assert list(found) == ["layers.0.mlp.fc1.output", "layers.0.mlp.act_fn.output", "layers.0.mlp.down_proj.output",
                           *(f"layers.{i}.layer_output" for i in range(3)), "logits"]  # fmt: skip
    assert found["layers.0.mlp.fc2.output"] is found["layers.0.mlp.down_proj.output"]
    assert found["layers.-1.layer_output"] is found["layers[-1].layer_output"] is found["layers.2.layer_output"]


# The mapping.


def test_the_mapping_is_a_dict_that_answers_to_the_names_asked_for() -> None:
    found = tiny.shared().read(tiny.IDS, "layers.-1.layer_output", "mlp_output", "input_size")
    plain = dict(found)
    assert isinstance(found, dict)
    assert found == plain
    assert {**found}.keys() == plain.keys()
    assert len(found) == len(list(found)) == tiny.LAYERS + 2
    assert found.get("layers.-1.layer_output") is found["layers.2.layer_output"]
    assert found.get("layers.0.layer_output", 3) == 3
    assert list(found["mlp_output"]) == [f"layers.{i}.mlp.mlp_output" for i in range(tiny.LAYERS)]
    with pytest.raises(
        KeyError, match=r"'layers\.2\.layer_outptu' was not read\. Did you mean 'layers\.2\.layer_output'"
    ):
        found["layers.2.layer_outptu"]
    with pytest.raises(NotReadError, match=r"^'logits' was not read"):
        found["logits"]
    again = pickle.loads(pickle.dumps(found))
    assert torch.equal(again["layers.-1.layer_output"], found["layers.-1.layer_output"])
    assert found.copy()["layers.-1.layer_output"] is found["layers.-1.layer_output"]


def test_a_mapping_goes_through_torch_save_and_a_load_of_weights_only(tmp_path: Path) -> None:
    found = tiny.shared().read(tiny.IDS)
    torch.save(found, tmp_path / "values.pt")
    loaded = torch.load(tmp_path / "values.pt", weights_only=True)
    assert list(loaded) == list(found)
    assert torch.equal(loaded["logits"], found["logits"])


@pytest.mark.parametrize("kind", ["phi", *KINDS])
def test_safetensors_saves_what_was_read(kind: str, tmp_path: Path) -> None:
    model = tiny.shared() if kind == "phi" else models.wrapped(kind)
    everything = model.read(tiny.IDS)
    save_file(everything, tmp_path / "everything.safetensors")
    loaded = load_file(tmp_path / "everything.safetensors")
    assert loaded.keys() == everything.keys()
    assert all(torch.equal(loaded[path], value) for path, value in everything.items())
    values = model.read(tiny.IDS, "*", "layers.0.mlp.*.output")
    save_file(values, tmp_path / "values.safetensors")
    loaded = load_file(tmp_path / "values.safetensors")
    assert loaded.keys() == values.keys()
    assert all(torch.equal(loaded[path], value) for path, value in values.items())
    save_file(
        model.read(tiny.IDS, "*", "input_size", "layers.0.self_attn.output").tensors(), tmp_path / "all.safetensors"
    )
    loaded = load_file(tmp_path / "all.safetensors")
    assert loaded["input_size"].tolist() == [3, 6]
    assert torch.equal(loaded["layers.0.self_attn.output.0"], everything["layers.0.self_attn.attention_output"])


def test_a_value_that_shares_its_memory_with_no_other_is_not_copied() -> None:
    hf, model = tiny.plain(), tiny.shared()
    seen: list[Tensor] = []
    handle = hf.model.layers[1].register_forward_hook(lambda _m, _a, out: seen.append(out))
    found = model.read(tiny.IDS, "layers.*.layer_output", "layers.2.layer_input")
    handle.remove()
    assert found["layers.1.layer_output"].data_ptr() == seen[0].data_ptr()
    assert found["layers.2.layer_input"].data_ptr() != seen[0].data_ptr()
    assert torch.equal(found["layers.2.layer_input"], seen[0])


# What nobody knows.

WRONG = [
    ("layers.1.o_proj.output", UnknownValueError, "Did you mean 'layers.1.self_attn.o_proj.output'?"),
    ("o_proj.output", UnknownValueError, "Did you mean 'layers.*.self_attn.o_proj.output'?"),
    ("layers.1.attention_output", UnknownValueError, "Did you mean 'layers.1.self_attn.attention_output'?"),
    ("self_attn.attention_output", UnknownValueError, "Did you mean 'layers.*.self_attn.attention_output'?"),
    ("layers.0.logits", UnknownValueError, "Did you mean 'logits'?"),
    ("layers.0.mlp", UnknownValueError, "'layers.0.mlp' is a module. Say what of it: 'layers.0.mlp.output'"),
    ("layers.*.mlp", UnknownValueError, "is a module"),
    ("layers.0.mlp.fc1.weight", UnknownValueError, "is a parameter: `model.layers[0].mlp.fc1.weight`"),
    ("hidden_size", UnknownValueError, "is a size"),
    ("layers.7.layer_output", UnknownValueError, "There are 3 layers, 0 to 2. Did you mean 'layers.2.layer_output'?"),
    ("layers.-4.mlp.fc1.output", UnknownLayerError, "3 layers, 0 to 2"),
    ("layers.5:9.layer_output", UnknownLayerError, "3 layers, 0 to 2"),
    ("layers.1.self_attn.source.self_q_porj_0.output", UnknownValueError, "Did you mean 'self_q_proj_0'"),
    ("layers.output", UnavailableValueError, "a pass of this model does not call `model.layers`"),
    ("layers.1.layer_mid", UnavailableValueError, "parallel"),
    ("resid_post", UnknownValueError, "TransformerLens's `resid_post` is here 'layers.*.layer_output'."),
    ("blocks.1.hook_resid_post", UnknownValueError, "is here 'layers.1.layer_output'."),
    ("blocks.1.attn.hook_pattern", UnknownValueError, "is here 'layers.1.self_attn.attention_probabilities'."),
    ("layers_output", UnknownValueError, "nnterp's `layers_output` is here"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "error", "words"), WRONG)
def test_a_wrong_name_is_told_what_would_be_right_in_read_and_hooks_alike(name: str, error: type, words: str) -> None:
    model = tiny.shared()
    with pytest.raises(error) as caught:
        model.read(tiny.IDS, name)
    assert words in str(caught.value)
    with pytest.raises(error) as again:
        model.hooks({name: lambda value: value})
    assert str(again.value) == str(caught.value)
