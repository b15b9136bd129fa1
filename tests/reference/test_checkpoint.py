"""Reading checkpoints: every dtype, every form of the config, and everything that is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cutaway.errors import CutawayError, LoadError, NoWeightsError, UnsupportedModelError
from cutaway.reference import Phi, PhiConfig, checkpoint

PHI_2 = {
    "_name_or_path": "microsoft/phi-2",
    "architectures": ["PhiForCausalLM"],
    "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_phi.PhiConfig"},
    "bos_token_id": 50256,
    "embd_pdrop": 0.0,
    "eos_token_id": 50256,
    "hidden_act": "gelu_new",
    "hidden_size": 2560,
    "initializer_range": 0.02,
    "intermediate_size": 10240,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 2048,
    "model_type": "phi",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "partial_rotary_factor": 0.4,
    "qk_layernorm": False,
    "resid_pdrop": 0.1,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.37.0",
    "use_cache": True,
    "vocab_size": 51200,
}


@pytest.fixture
def folder(make_torch, tmp_path):
    make_torch(torch.float32, num_hidden_layers=2).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        if value is ...:
            del config[key]
        else:
            config[key] = value
    (folder / "config.json").write_text(json.dumps(config))


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_are_widened_exactly(make_torch, tmp_path, stored):
    torch_model = make_torch(stored)
    torch_model.save_pretrained(tmp_path)
    model = Phi.from_pretrained(tmp_path)
    assert model.dtype == (np.float64 if stored == torch.float64 else np.float32)
    exact = Phi.from_pretrained(tmp_path, dtype=np.float64)
    state = {name: tensor.double().numpy() for name, tensor in torch_model.state_dict().items()}
    for read in (model, exact):
        block = read.layers[2]
        for name, array in {
            "model.embed_tokens.weight": read.embed_tokens,
            "model.final_layernorm.bias": read.norm.bias,
            "lm_head.weight": read.lm_head.weight,
            "lm_head.bias": read.lm_head.bias,
            "model.layers.2.self_attn.dense.weight": block.self_attn.o_proj.weight,
            "model.layers.2.self_attn.k_proj.bias": block.self_attn.k_proj.bias,
            "model.layers.2.mlp.fc1.weight": block.mlp.fc1.weight,
            "model.layers.2.mlp.fc2.bias": block.mlp.down_proj.bias,
            "model.layers.2.input_layernorm.weight": block.input_layernorm.weight,
        }.items():
            assert array is not None
            assert array.dtype == read.dtype
            assert np.array_equal(array, state[name]), name


def test_infinities_and_nans_of_bfloat16(tmp_path):
    values = torch.tensor([1.5, -0.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3e38], dtype=torch.bfloat16)
    save_file({"x": values}, tmp_path / "x.safetensors")
    with checkpoint.SafetensorsFile(tmp_path / "x.safetensors") as file:
        assert np.array_equal(file.read("x", np.float32), values.float().numpy(), equal_nan=True)


def test_a_checkpoint_in_several_files(make_torch, tmp_path):
    torch_model = make_torch(torch.float32)
    torch_model.save_pretrained(tmp_path / "many", max_shard_size="20KB")
    torch_model.save_pretrained(tmp_path / "one")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    ids = [[1, 2, 3]]
    many, one = Phi.from_pretrained(tmp_path / "many"), Phi.from_pretrained(str(tmp_path / "one"))
    assert np.array_equal(many(ids).logits, one(ids).logits)
    absent = sorted((tmp_path / "many").glob("*.safetensors"))[1]
    absent.unlink()
    with pytest.raises(LoadError, match=absent.name):
        Phi.from_pretrained(tmp_path / "many")


@pytest.mark.parametrize("where", ["..", "{folder}/..", "../model/.."])
def test_an_index_reaches_no_file_outside_its_folder(folder, where):
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    names = load_file(folder.parent / "outside.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, f"{where.format(folder=folder)}/outside.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(LoadError, match=r"outside\.safetensors"):
        Phi.from_pretrained(folder)


def test_what_was_loaded_does_not_hang_on_the_file(folder):
    model = Phi.from_pretrained(folder)
    before = model([[1, 2]]).logits
    shutil.rmtree(folder)
    assert np.array_equal(model([[1, 2]]).logits, before)


def test_tensors_in_memory_are_shared(make_torch):
    torch_model = make_torch(torch.float32)
    state = {name: tensor.detach().numpy() for name, tensor in torch_model.state_dict().items()}
    model = Phi.from_tensors(torch_model.config.to_dict(), state)
    assert np.shares_memory(model.embed_tokens, state["model.embed_tokens.weight"])
    del state["lm_head.bias"]
    with pytest.raises(LoadError, match=r"Missing: `lm_head\.bias`"):
        Phi.from_tensors(torch_model.config.to_dict(), state)


@pytest.mark.parametrize("keep_head", [True, False])
def test_a_tied_head(make_torch, tmp_path, keep_head):
    torch_model = make_torch(torch.float32, tie_word_embeddings=True)
    torch_model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    if keep_head:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    with torch.no_grad():
        expected = torch_model(torch.tensor([[1, 2, 3]])).logits.numpy()
    assert np.allclose(Phi.from_pretrained(tmp_path)([[1, 2, 3]]).logits, expected, atol=1e-4)
    if keep_head:
        change_tensors(tmp_path, lambda tensors: tensors["lm_head.weight"].add_(1))
        with pytest.raises(LoadError, match="tie_word_embeddings"):
            Phi.from_pretrained(tmp_path)


def test_the_config_of_phi_2():
    config = PhiConfig.from_dict(PHI_2)
    assert (config.num_layers, config.hidden_size, config.num_heads, config.num_kv_heads) == (32, 2560, 32, 32)
    assert (config.head_dim, config.qk_head_dim, config.vocab_size, config.intermediate_size) == (80, 80, 51200, 10240)
    assert (config.rotary_dim, config.rope_theta, config.layer_norm_eps) == (32, 10000.0, 1e-5)
    assert config.eos_token_id == 50256
    present = {key: value for key, value in PHI_2.items() if key not in ("partial_rotary_factor", "rope_theta")}
    present["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.4}
    assert PhiConfig.from_dict(present) == config


def test_what_a_config_may_leave_out():
    config = PhiConfig.from_dict(
        {
            "model_type": "phi",
            "vocab_size": 61,
            "hidden_size": 2048,
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
        }
    )
    assert (config.num_kv_heads, config.head_dim, config.rotary_dim) == (32, 64, 32)
    assert config == PhiConfig(2, 2048, 32, 32, 64, 61, 80, 32)


def test_random_models_from_every_form_of_config(folder, make_torch):
    given = make_torch(num_hidden_layers=2).config.to_dict()
    models = [Phi.from_config(form, 3) for form in (folder, str(folder), given, PhiConfig.from_dict(given))]
    for model in models:
        assert np.array_equal(model([[1, 2]]).logits, models[0]([[1, 2]]).logits)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "phi3"}, "phi3"),
        ({"model_type": ...}, "model_type"),
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, "llama"),
        ({"architectures": ["PhiForSequenceClassification"]}, "PhiForSequenceClassification"),
        ({"sliding_window": 5}, "`sliding_window`"),
        ({"alpha": 1, "beta": 2}, "`alpha`, `beta`"),
        ({"hidden_act": "gelu"}, "`hidden_act` is 'gelu'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_parameters": {"rope_type": "default", "factor": 2.0}}, "`factor`"),
        ({"rope_parameters": {"partial_rotary_factor": 0.4}}, "makes 3 rotary"),
        ({"rope_parameters": {"partial_rotary_factor": 1.5}}, "makes 12 rotary"),
        ({"rope_parameters": {"partial_rotary_factor": 0}}, "makes 0 rotary"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "hidden_size"),
        ({"num_hidden_layers": ...}, "`num_hidden_layers`"),
        ({"vocab_size": 0}, "`vocab_size` is 0"),
        ({"vocab_size": "61"}, "`vocab_size` is '61'"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"head_dim": 10, "qk_layernorm": True}, "qk_layernorm"),
        ({"quantization_config": {}}, "quantization_config"),
    ],
)
def test_configs_that_are_refused(folder, changes, words):
    change_config(folder, **changes)
    for load in (Phi.from_pretrained, Phi.from_config):
        with pytest.raises((UnsupportedModelError, LoadError), match=words):
            load(folder)


def test_missing_and_extra_tensors_are_named(folder):
    def change(tensors):
        del tensors["model.layers.1.self_attn.dense.bias"]
        tensors["model.layers.1.self_attn.o_proj.bias"] = torch.zeros(32)
        tensors["model.norm.weight"] = torch.zeros(32)
        tensors["lm_head.bias"] = torch.zeros(60)

    change_tensors(folder, change)
    with pytest.raises(LoadError) as caught:
        Phi.from_pretrained(folder)
    message = str(caught.value)
    assert "Missing: `model.layers.1.self_attn.dense.bias`." in message
    assert "Not part of the model: `model.layers.1.self_attn.o_proj.bias`, `model.norm.weight`." in message
    assert "Of another shape: `lm_head.bias` is [60], expected [61]." in message


def test_a_long_list_of_missing_tensors_is_cut(folder):
    change_config(folder, num_hidden_layers=6)
    with pytest.raises(LoadError, match=r"Missing: `model.layers.2.input_layernorm.bias`.* and 48 more"):
        Phi.from_pretrained(folder)


def test_qk_layernorm_needs_its_tensors(folder):
    change_config(folder, qk_layernorm=True)
    with pytest.raises(LoadError, match=r"model.layers.0.self_attn.k_layernorm.bias"):
        Phi.from_pretrained(folder)


@pytest.mark.parametrize("cut", [1, 500, -500, -1])
def test_truncated_files(folder, cut):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    with pytest.raises(LoadError, match=r"truncated|not a safetensors"):
        Phi.from_pretrained(folder)


def test_the_tensor_at_which_a_file_ends_is_named(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LoadError, match=r"ends inside or before `model\."):
        Phi.from_pretrained(folder)


def rewritten(content, change):
    """A safetensors file's content with a changed header."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    new = json.dumps(change(header)).encode()
    return len(new).to_bytes(8, "little") + new + content[8 + length :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"version https://git-lfs.github.com/spec/v1\n",
        lambda content: content + b"\0",
        lambda content: content[:8] + b"?" + content[9:],
        lambda content: rewritten(content, lambda header: []),
        lambda content: rewritten(content, lambda header: {**header, "more": 3}),
        lambda content: rewritten(content, lambda header: {**header, "lm_head.bias": {"dtype": "F32", "shape": [61]}}),
        lambda content: rewritten(
            content, lambda header: {**header, "lm_head.bias": {**header["lm_head.bias"], "shape": [60]}}
        ),
        lambda content: rewritten(
            content, lambda header: {**header, "lm_head.bias": {**header["lm_head.bias"], "data_offsets": [8, 252]}}
        ),
    ],
)
def test_damaged_files(folder, damage):
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LoadError, match=r"model\.safetensors"):
        Phi.from_pretrained(folder)


def test_tensors_of_whole_numbers_are_refused(folder):
    change_tensors(folder, lambda tensors: tensors.update({"lm_head.bias": torch.zeros(61, dtype=torch.int64)}))
    with pytest.raises(LoadError, match=r"`lm_head\.bias` is of dtype I64"):
        Phi.from_pretrained(folder)


def test_folders_that_are_no_checkpoints(folder, tmp_path):
    def refuses(words, kind=LoadError, name=folder):
        with pytest.raises(kind, match=words) as caught:
            Phi.from_pretrained(name)
        assert isinstance(caught.value, CutawayError)

    refuses("neither a folder nor a built-in name", name="no-such-model")
    refuses("neither", name="../phi-mini")
    refuses("is a file", name=folder / "config.json")
    (tmp_path / "empty").mkdir()
    refuses("no config.json", name=tmp_path / "empty")
    (folder / "model.safetensors").rename(folder / "away")
    refuses("no model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"")
    refuses("pickle")
    (folder / "model.safetensors.index.json").write_text("{}")
    refuses("weight_map")
    (folder / "config.json").write_text("[]")
    refuses("JSON object")
    (folder / "config.json").write_text("{")
    refuses("cannot be read as JSON")


def test_built_in_names(folder, tmp_path, monkeypatch):
    data = tmp_path / "data"
    shutil.copytree(folder, data / "tiny")
    (data / "bare").mkdir()
    shutil.copy(folder / "config.json", data / "bare")
    monkeypatch.setattr(checkpoint, "BUILT_IN", data)
    assert Phi.from_pretrained("tiny")([[1]]).logits.shape == (1, 1, 61)
    for name in ("bare", "microsoft/bare"):
        assert Phi.from_config(name, 0)([[1]]).logits.shape == (1, 1, 61)
        with pytest.raises(NoWeightsError, match="'bare'"):
            Phi.from_pretrained(name)
    for name in ("tin", "another/tiny", "microsoft"):
        with pytest.raises(LoadError, match="bare, tiny"):
            Phi.from_pretrained(name)


@pytest.mark.parametrize(("name", "rotary_dim", "layers"), [("phi-1", 32, 24), ("phi-1_5", 32, 24), ("phi-2", 32, 32)])
def test_the_published_configs(name, rotary_dim, layers):
    config = checkpoint.read_config(checkpoint.find_folder(f"microsoft/{name}"))
    assert (config.rotary_dim, config.num_layers) == (rotary_dim, layers)
