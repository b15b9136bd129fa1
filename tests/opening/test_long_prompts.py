"""Prompts beyond the context: a rotary runs on with a warning, a table of positions ends."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, PretrainedConfig

from catalogue import tiny as catalogue
from cutaway import StandardizedTransformer
from cutaway.errors import InputError, LongPromptWarning
from cutaway.subject.limits import limits_of
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


OF_EACH_KIND = (
    *("gpt2", "opt", "gpt_neo", "gptj", "codegen", "ctrl", "biogpt", "bart", "roberta", "bert", "whisper"),
    *("xglm", "jamba", "nemotron_h", "rwkv", "gemma3"),
)


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_the_context_of_every_kind_of_positions(name: str) -> None:
    """Learned, fixed and computed ones, some with rows before the first, or none: as far as the plain model runs."""
    hf = catalogue.build(catalogue.case(name))
    limits = limits_of(hf, 160, hf.get_input_embeddings())
    assert limits.context is not None

    def runs(length: int) -> bool:
        try:
            with torch.no_grad():
                hf(input_ids=torch.arange(length)[None] % 40 + 10)
        except (IndexError, RuntimeError):
            return False
        return True

    assert runs(limits.context)
    assert runs(limits.context + 1) is not limits.ends_there


LEARNED = {"gpt2": models.gpt2, "opt": lambda: catalogue.config("opt")}
PROMPT = IDS[:, :40]


def generated(hf: Any, prompt: torch.Tensor, **told: Any) -> torch.Tensor:
    return hf.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, **told)


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning")
@pytest.mark.parametrize("family", LEARNED)
def test_new_tokens_count_against_a_table_of_positions(family: str) -> None:
    hf: Any = models.build(LEARNED[family]())
    hf.generation_config.eos_token_id = None
    model = StandardizedTransformer(hf, check=False)
    context = model.config.max_position_embeddings
    prompt = torch.cat([IDS] * 5, dim=1)[:, : context - 8]
    expected = generated(hf, prompt, max_new_tokens=9)  # the ninth is not run
    for told in (
        {"max_new_tokens": 9},
        {"max_length": context + 1},
        {"generation_config": GenerationConfig(max_new_tokens=9, pad_token_id=0)},
    ):
        assert torch.equal(model.generate(prompt, do_sample=False, **told).output, expected)
    with pytest.raises(IndexError):
        generated(hf, prompt, max_new_tokens=10)
    says = rf"{context - 8} tokens long and up to 10 new ones are asked for.*context is {context}\. Ask for 9 at most"
    for told in (
        {"max_new_tokens": 10},
        {"max_length": context + 2},
        {"generation_config": GenerationConfig(max_new_tokens=10)},
    ):
        with pytest.raises(InputError, match=says):
            model.generate(prompt, **told)
        with pytest.raises(InputError, match=says):
            model.edited({"layer_output": lambda value: value + 1}).generate(prompt, **told)
    hf.generation_config.max_new_tokens = 10
    with pytest.raises(InputError, match=says):
        model.generate(prompt)
    hf.generation_config.max_new_tokens = None
    assert torch.equal(model.generate(prompt, do_sample=False).output, generated(hf, prompt))  # within, by itself
    stop = int(expected[0, -1])
    told = {"max_new_tokens": 10, "eos_token_id": [stop, *expected[1:, -1].tolist()], "pad_token_id": 0}
    with pytest.warns(LongPromptWarning, match="Unless it stops before, it fails there.*max_new_tokens=9") as caught:
        run = model.generate(prompt, do_sample=False, **told)
    assert caught[0].filename == __file__
    assert torch.equal(run.output, generated(hf, prompt, **told))


@pytest.mark.parametrize("case", ["phi", "llama", "neox"])
def test_new_tokens_beyond_the_context_of_a_rotary_are_told_once(case: str) -> None:
    model = StandardizedTransformer(models.build(CONFIGS[case]()), check=False)
    told = r"the prompt is 40 tokens long and up to 10 new ones are asked for, and the model's context is 48\..*runs"
    with pytest.warns(LongPromptWarning, match=told) as caught:
        found = model.generate(PROMPT, max_new_tokens=10, do_sample=False).output
    assert [one.filename for one in caught] == [__file__]
    assert torch.equal(found, generated(model.hf, PROMPT, max_new_tokens=10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate(PROMPT, max_new_tokens=9, do_sample=False).output
    with pytest.warns(LongPromptWarning, match="the prompt is 60 tokens long, and") as caught:
        model.generate(IDS, max_new_tokens=2)
    assert len(caught) == 1
