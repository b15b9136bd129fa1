"""Opening a model from a folder, a loaded model or a config, with or without weights; and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MambaConfig, MambaForCausalLM, PhiForCausalLM

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, LoadError, NoWeightsError, UnsupportedModelError
from tests import tiny


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny.fresh("P-gqa").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to be spoilt."""
    return Path(shutil.copytree(saved, tmp_path / "copy"))


@pytest.mark.parametrize("as_path", [str, Path])
@pytest.mark.parametrize("attention", [None, "sdpa", "eager"])
def test_a_folder_gives_the_logits_of_transformers_bit_for_bit(
    saved: Path, as_path: Any, attention: str | None
) -> None:
    hf = PhiForCausalLM.from_pretrained(saved, attn_implementation=attention)
    model = StandardizedTransformer(as_path(saved), attn_implementation=attention)
    assert model.config._attn_implementation == (attention or "sdpa")
    assert torch.equal(model.read(tiny.LEFT_PADDED, "logits")["logits"], tiny.logits_of(hf, tiny.LEFT_PADDED))
    assert not model.hf.training


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16, "float16"])
def test_without_a_dtype_a_checkpoint_keeps_its_own(tmp_path: Path, dtype: Any) -> None:
    tiny.fresh(dtype=torch.float16).save_pretrained(tmp_path)
    expected = {None: torch.float16, "float16": torch.float16}.get(dtype, dtype)
    assert StandardizedTransformer(tmp_path, dtype=dtype).dtype == expected
    assert StandardizedTransformer(tmp_path, dtype=dtype, dispatch=False).dtype == expected


def test_a_config_gives_random_weights() -> None:
    model = StandardizedTransformer(tiny.config(attention="eager"), dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert model.config._attn_implementation == "eager"
    assert not model.hf.training
    assert model.read(tiny.IDS, "logits")["logits"].isfinite().all()


def test_without_dispatch_there_are_no_weights_until_the_first_trace(saved: Path) -> None:
    model = StandardizedTransformer(saved, dispatch=False)
    assert model.device == torch.device("meta")
    assert model.lm_head.weight.is_meta
    assert model.support()["layer_mid"].available is False
    assert "layer_output" in str(model)
    assert model.device == torch.device("meta")
    expected = tiny.logits_of(PhiForCausalLM.from_pretrained(saved), tiny.IDS)
    with model.trace(tiny.IDS):
        stream = model.layers[2].layer_output
        assert torch.equal(model.logits, expected)
    assert model.device == torch.device("cpu")
    assert torch.equal(model.project_on_vocab(stream), expected)
    assert not model.lm_head.weight.is_meta


@pytest.mark.parametrize("first", ["read", "hooks", "project_on_vocab"])
def test_weights_come_at_the_first_use_of_any_kind(saved: Path, first: str) -> None:
    model = StandardizedTransformer(saved, dispatch=False)
    expected = tiny.logits_of(PhiForCausalLM.from_pretrained(saved), tiny.IDS)
    if first == "read":
        assert torch.equal(model.read(tiny.IDS, "logits")["logits"], expected)
    elif first == "hooks":
        with model.hooks({"layers.2.layer_output": lambda value: value * 1}), model.trace(tiny.IDS):
            assert torch.equal(model.logits, expected)
    else:
        assert model.project_on_vocab(torch.ones(1, 32)).device == torch.device("cpu")


def test_a_config_without_dispatch_is_built_at_the_first_trace() -> None:
    model = StandardizedTransformer(tiny.config(), dispatch=False)
    assert model.lm_head.weight.is_meta
    assert model.read(tiny.IDS, "logits")["logits"].shape == (3, 6, tiny.VOCAB)


def test_a_loaded_model_on_the_meta_device_has_nowhere_to_get_weights_from() -> None:
    with torch.device("meta"):
        hf = PhiForCausalLM(tiny.config()).eval()
    model = StandardizedTransformer(hf)
    assert model.support()["layer_output"].available
    with pytest.raises(NoWeightsError, match="is on the meta device and has no weights"), model.trace(tiny.IDS):
        pass


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "head_dim", "dtype"),
    [
        ("microsoft/phi-1", 24, 2048, 64, torch.float32),
        ("microsoft/phi-1_5", 24, 2048, 64, torch.float16),
        ("microsoft/phi-2", 32, 2560, 80, torch.float16),
    ],
)
def test_the_real_phis_are_looked_at_with_no_download(
    name: str, layers: int, hidden: int, head_dim: int, dtype: torch.dtype
) -> None:
    model = StandardizedTransformer(name, dispatch=False)
    assert model.sizes == {
        "num_layers": layers,
        "hidden_size": hidden,
        "num_heads": 32,
        "num_kv_heads": 32,
        "head_dim": head_dim,
        "qk_head_dim": head_dim,
        "vocab_size": 51200,
        "intermediate_size": 4 * hidden,
    }
    assert (model.dtype, model.device) == (dtype, torch.device("meta"))
    rows = model.support().to_dict()["values"]
    assert len([row for row in rows if not row["rare"]]) == 26
    assert [row["value"] for row in rows if not row["available"] and not row["rare"]] == ["layer_mid"]
    assert {len(row["layers"]) for row in rows if row["host"] != "model" and row["available"]} == {layers}
    json.dumps(rows)


def test_support_tells_where_each_value_is_read_and_why_one_is_missing() -> None:
    support = tiny.shared().support()
    where = {row.value: row.where for row in support}
    for value, words in {
        "layer_output": "layer's output",
        "attention_norm_output": "input_layernorm's output",
        "mlp_norm_output": "input_layernorm's output",
        "mlp_neurons": "fc2's input",
        "attention_premix": "dense's input",
        "mlp_activation": "activation_fn's output",
        "attention_queries": "attention function's arguments",
        "attention_scores": "softmax's input",
        "final_norm_output": "final_layernorm's output",
        "layer_mid": "parallel",
        "next_token_probs": "derived from `logits`",
    }.items():
        assert words in where[value]
    assert support["next_token_probs"].read_only
    assert support["attention_scores"].axes == ("batch", "num_heads", "query", "key")
    assert "sdpa" in support["attention_scores"].condition
    assert tiny.shared("P", "eager").support()["attention_scores"].condition == ""


def test_a_model_in_training_mode_warns_and_stays_in_it() -> None:
    hf = tiny.fresh().train()
    with pytest.warns(UserWarning, match=r"is in training mode.*eval\(\)"):
        StandardizedTransformer(hf, check=False)
    assert hf.training


def spoil(folder: Path, how: str) -> None:
    weights, config = folder / "model.safetensors", folder / "config.json"
    tensors, native = load_file(weights), json.loads(config.read_text())
    if how == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "not safetensors":
        weights.write_bytes(b"something else")
    elif how == "missing key":
        del tensors["model.layers.1.mlp.fc1.bias"]
        save_file(tensors, weights, {"format": "pt"})
    elif how == "surplus key":
        save_file({**tensors, "model.layers.9.mlp.fc1.bias": torch.zeros(1)}, weights, {"format": "pt"})
    elif how == "wrong shape":
        tensors["lm_head.bias"] = torch.zeros(5)
        save_file(tensors, weights, {"format": "pt"})
    elif how == "no weights":
        weights.unlink()
    elif how == "pickle":
        weights.unlink()
        torch.save(tensors, folder / "pytorch_model.bin")
    elif how == "no config":
        config.unlink()
    elif how == "damaged config":
        config.write_text("{")
    elif how == "remote code":
        native.update(auto_map={"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}, model_type="new")
        config.write_text(json.dumps(native))
        (folder / "code.py").write_text("raise SystemExit('it ran')")
    elif how == "unknown flag":
        native.update(logit_softcap=30.0)
        config.write_text(json.dumps(native))


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("truncated", LoadError, "are damaged"),
        ("not safetensors", LoadError, "are damaged"),
        ("missing key", LoadError, "lack `model.layers.1.mlp.fc1.bias`; transformers would fill them at random"),
        ("surplus key", LoadError, "hold `model.layers.9.mlp.fc1.bias`, which PhiForCausalLM has no place for"),
        ("wrong shape", LoadError, "`lm_head.bias` is [5] in the file and [64] by the config"),
        ("no weights", LoadError, "holds no weights"),
        ("pickle", LoadError, "are in pickle format, and loading them can run code"),
        ("no config", LoadError, "holds no config.json"),
        ("damaged config", LoadError, "is damaged"),
        ("remote code", LoadError, "brings its own code, which loading it would run"),
        ("unknown flag", UnsupportedModelError, "sets `logit_softcap` to 30.0"),
    ],
)
def test_a_checkpoint_that_cannot_be_had_says_why(folder: Path, how: str, error: type[Exception], words: str) -> None:
    spoil(folder, how)
    with pytest.raises(error) as caught:
        StandardizedTransformer(folder)
    assert words in str(caught.value)
    assert isinstance(caught.value, CutawayError)


@pytest.mark.parametrize("how", ["unknown flag", "remote code", "no config"])
def test_what_the_config_tells_is_refused_before_any_weights(folder: Path, how: str) -> None:
    spoil(folder, how)
    with pytest.raises(CutawayError):
        StandardizedTransformer(folder, dispatch=False)


def test_pickle_is_loaded_when_asked_for(folder: Path) -> None:
    spoil(folder, "pickle")
    model = StandardizedTransformer(folder, allow_pickle=True)
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(tiny.plain("P-gqa")))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("phi-mnii", "Did you mean 'phi-mini'"),
        ("phi-2", "Did you mean 'microsoft/phi-2'"),
        ("./no/such/folder", "there is no folder ./no/such/folder"),
        (3, "it was given a int"),
    ],
)
def test_a_name_that_is_no_model_says_what_would_be(source: Any, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        StandardizedTransformer(source)
    assert words in str(caught.value)


def test_a_file_instead_of_its_folder(saved: Path) -> None:
    with pytest.raises(LoadError, match="is a file"):
        StandardizedTransformer(saved / "config.json")


@pytest.mark.parametrize("value", [True, 3, "odd"])
def test_a_config_flag_that_the_family_has_not_considered_is_refused(value: Any) -> None:
    config = tiny.config()
    config.use_odd_scaling = value
    with pytest.raises(UnsupportedModelError, match="use_odd_scaling"):
        StandardizedTransformer(config)
    with pytest.raises(UnsupportedModelError, match="use_odd_scaling"):
        StandardizedTransformer(PhiForCausalLM(config))


def test_a_class_that_no_family_covers_is_derived() -> None:
    hf = MambaForCausalLM(MambaConfig(vocab_size=8, hidden_size=8, state_size=2, num_hidden_layers=1)).eval()
    model = StandardizedTransformer(hf)
    assert "family derived and measured" in str(model)
    assert "layers.0.mixer.mixer_output" in model.read([1, 2, 3], "mixer_output")
