"""Prompts beyond the context: a rotary runs on with a warning, a table of positions ends."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from transformers import PretrainedConfig

from cutaway import StandardizedTransformer
from cutaway.errors import InputError, LongPromptWarning
from tests import tiny
from tests.families import models

IDS = torch.randint(1, 64, (3, 60), generator=torch.Generator().manual_seed(0))
_ROPE = {"rope_theta": 10000.0, "factor": 2.0}
_YARN = {**_ROPE, "rope_type": "yarn", "original_max_position_embeddings": 24}
CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "phi": tiny.config,
    "llama": models.llama,
    "llama-linear": lambda: models.llama(rope_parameters={**_ROPE, "rope_type": "linear"}),
    "llama-yarn": lambda: models.llama(rope_parameters=_YARN),
    "neox": models.neox,
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_rotary_runs_beyond_its_context_and_warns(case: str) -> None:
    model = StandardizedTransformer(models.build(CONFIGS[case]()), check=False)
    told = r"the prompt is 60 tokens long, and the model's context is 48\..*the model runs"
    with pytest.warns(LongPromptWarning, match=told) as caught:
        found = model.read(IDS, "logits")["logits"]
    assert caught[0].filename == __file__
    assert torch.equal(found, tiny.logits_of(model.hf, IDS))  # type: ignore[arg-type]
    with pytest.warns(LongPromptWarning) as caught, model.trace(IDS):
        assert torch.equal(model.logits, found)
    assert caught[0].filename == __file__
    with pytest.warns(LongPromptWarning) as caught:
        generated = model.generate(IDS, max_new_tokens=2, do_sample=False).output
    assert caught[0].filename == __file__
    assert torch.equal(generated, model.hf.generate(IDS, max_new_tokens=2, do_sample=False))  # type: ignore[operator]


def test_a_rotary_that_turns_by_the_length_has_no_end_to_warn_of() -> None:
    config = models.llama(rope_parameters={**_ROPE, "rope_type": "dynamic"})
    model = StandardizedTransformer(models.build(config), check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.read(IDS, "logits")["logits"]
    assert torch.equal(found, tiny.logits_of(models.build(config), IDS))  # type: ignore[arg-type]


def test_a_table_of_positions_ends() -> None:
    model = StandardizedTransformer(models.build(models.gpt2()), check=False)
    for run in (model.trace, model.read, model.scan, model.generate):
        with pytest.raises(InputError, match=r"60 tokens long, and the model's context is 48.*no row for positions"):
            run(IDS)
    assert torch.equal(model.read(IDS[:, :48], "logits")["logits"], tiny.logits_of(model.hf, IDS[:, :48]))  # type: ignore[arg-type]
