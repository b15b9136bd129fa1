"""Options of opening: each is honoured, or refused with near names, whatever the model is given as."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel
from transformers.models.auto.auto_factory import _BaseAutoModelClass

from cutaway import StandardizedTransformer
from cutaway.errors import InputError, LoadError, OptionError
from cutaway.subject.options import TABLE
from tests import tiny

UNKNOWN: list[tuple[dict[str, Any], str]] = [
    ({"attn_implementatoin": "eager"}, "attn_implementation"),
    ({"anything": 1}, "anything"),
    ({"dtpye": torch.float64}, "dtype"),
]


@pytest.mark.parametrize(("options", "word"), UNKNOWN)
def test_an_option_that_nobody_knows_is_refused(tmp_path: Path, options: dict[str, Any], word: str) -> None:
    hf = tiny.fresh()
    hf.save_pretrained(tmp_path)
    for source in (hf, hf.config, tmp_path, "phi-mini"):
        with pytest.raises(LoadError, match=word):
            StandardizedTransformer(source, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": torch.float64},
        {"attn_implementation": "eager"},
        {"dispatch": False},
        {"revision": "main"},
        {"gguf_file": "a.gguf"},
        {"device_map": "auto"},
        {"allow_pickle": True},
        {"trust_remote_code": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_has_no_effect_on_a_loaded_model_is_refused(options: dict[str, Any]) -> None:
    hf = tiny.fresh()
    with pytest.raises(LoadError, match=next(iter(options))):
        StandardizedTransformer(hf, **options)
    assert (hf.dtype, hf.config._attn_implementation) == (torch.float32, "sdpa")


def test_a_config_takes_what_it_can() -> None:
    config = tiny.fresh().config
    model = StandardizedTransformer(config, dtype=torch.float64, attn_implementation="eager", device="cpu")
    assert (model.dtype, model.config._attn_implementation) == (torch.float64, "eager")
    assert not StandardizedTransformer(config, dispatch=False)._subject.has_weights
    with pytest.raises(LoadError, match="revision"):
        StandardizedTransformer(config, revision="main")


def test_a_checkpoint_takes_transformers_own(tmp_path: Path) -> None:
    tiny.fresh().save_pretrained(tmp_path)
    model = StandardizedTransformer(tmp_path, dtype=torch.bfloat16, attn_implementation="eager")
    assert (model.dtype, model.config._attn_implementation) == (torch.bfloat16, "eager")
    with pytest.raises(InputError, match="Did you mean 'sdpa'"):
        StandardizedTransformer(tmp_path, attn_implementation="spda")


WRONG_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"torch_dtype": "flaot32"}, "Did you mean 'float32'"),
    ({"dtype": 5}, "dtype=5 is no dtype of torch"),
    ({"dtype": torch.int8}, "torch.int8 is no dtype of floating point"),
    ({"torch_dtype": torch.float32, "dtype": torch.float32}, "the former name of `dtype`"),
    ({"attn_implementation": "SDPA"}, "Did you mean 'sdpa'"),
    ({"attn_implementation": 5}, "it was given 5"),
    ({"attn_implementation": {"": "spda"}}, "Did you mean 'sdpa'"),
    ({"quantization_config": "8bit"}, "`quantization_config` is a BitsAndBytesConfig"),
    ({"quantization_config": {"load_in_8bti": True}}, "Did you mean 'load_in_8bit'"),
    ({"device": "cpuu"}, "Did you mean 'cpu'"),
    ({"device_map": "atuo"}, "Did you mean 'auto'"),
    ({"device_map": {"": "cpuu"}}, "Did you mean 'cpu'"),
    ({"device": "cpu", "device_map": "auto"}, "Give one of them"),
    ({"tp_plan": "outo"}, "no tensor parallel plan is called 'outo'"),
    ({"key_mapping": 5}, "`key_mapping` is a mapping"),
    ({"trust_remote_code": "False"}, "`trust_remote_code` is True or False; it was given 'False'"),
    ({"dispatch": "no"}, "`dispatch` is True or False"),
    ({"check": "no"}, "`check` is True or False"),
]


@pytest.mark.parametrize(("options", "told"), WRONG_VALUES, ids=lambda one: str(one)[:30])
def test_a_value_that_nobody_knows_is_refused_before_anything_is_loaded(
    tmp_path: Path, options: dict[str, Any], told: str
) -> None:
    hf = tiny.plain()
    hf.config.save_pretrained(tmp_path)  # and no weights, whose lack would be told
    for source in (hf, hf.config, tmp_path):
        with pytest.raises(OptionError, match=told):
            StandardizedTransformer(source, **options)
    if "dispatch" not in options:
        with pytest.raises(OptionError, match=told):
            StandardizedTransformer(tmp_path, dispatch=False, **options)


def test_what_cannot_have_an_effect_beside_the_rest_is_refused(tmp_path: Path) -> None:
    tiny.fresh().save_pretrained(tmp_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"revision": "main"}, "`revision` has no effect on a folder"),
        ({"max_memory": {"cpu": "1GB"}}, "`max_memory` has an effect beside a device map alone"),
        ({"device_map": {"model.layer": "cpu"}}, "names 'model.layer'.*Did you mean 'model.layers'"),
        ({"subfolder": "weights"}, "weights holds no config.json"),
    ]
    for options, told in cases:
        with pytest.raises(LoadError, match=told):
            StandardizedTransformer(tmp_path, **options)
    assert issubclass(OptionError, LoadError)
    assert issubclass(OptionError, InputError)
    with pytest.raises(OptionError, match="names a part 'text_config'"):
        StandardizedTransformer(tmp_path, attn_implementation={"text_config": "eager"})  # type: ignore[arg-type]


def test_every_name_of_a_dtype_and_of_attention_is_taken(tmp_path: Path) -> None:
    tiny.fresh().save_pretrained(tmp_path / "inner")
    for options in ({"torch_dtype": torch.float64}, {"dtype": "torch.float64"}, {"torch_dtype": "double"}):
        for dispatch in (True, False):
            opened = StandardizedTransformer(tmp_path / "inner", dispatch=dispatch, check=False, **options)  # type: ignore[arg-type]
            assert opened.dtype == torch.float64
    opened = StandardizedTransformer(tmp_path, subfolder="inner", attn_implementation={"": "eager"}, revision=None)  # type: ignore[arg-type]
    assert opened.config._attn_implementation == "eager"
    assert torch.equal(opened.hf(tiny.IDS).logits, tiny.plain(attention="eager")(tiny.IDS).logits)


def test_the_config_that_is_given_stays_as_it_is() -> None:
    hf = tiny.fresh()
    before, expected = hf.config.to_dict(), tiny.logits_of(hf)
    StandardizedTransformer(hf.config, dtype=torch.float64, attn_implementation="eager")
    StandardizedTransformer(hf.config, dtype=torch.float64, attn_implementation="eager", dispatch=False)
    with pytest.raises(LoadError):
        StandardizedTransformer(hf.config, attn_implementation="flash_attention_2")
    assert hf.config.to_dict() == before
    assert hf.config._attn_implementation == "sdpa"
    assert torch.equal(tiny.logits_of(hf), expected)


def test_the_table_has_every_option_of_transformers() -> None:
    """What `from_pretrained` names, and what it takes out of its keywords, read in its source."""
    taken: set[str] = set()
    for function in (PreTrainedModel.from_pretrained, _BaseAutoModelClass.from_pretrained):
        taken |= {*inspect.signature(function).parameters}
        taken |= set(re.findall(r'kwargs\.(?:pop|get)\("([a-z]\w*)"', inspect.getsource(function)))
    assert taken - {"cls", "args", "kwargs", "model_args", "pretrained_model_name_or_path"} <= {*TABLE}


def test_the_table_has_every_option_of_ours() -> None:
    ours = {*inspect.signature(StandardizedTransformer.__init__).parameters} - {"self", "source", "extra"}
    assert ours == {name for name, row in TABLE.items() if row.goes == "here"} - {"torch_dtype"}
