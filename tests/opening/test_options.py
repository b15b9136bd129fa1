"""Options of opening: each is honoured, or refused with near names, whatever the model is given as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway import StandardizedTransformer
from cutaway.errors import InputError, LoadError
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
