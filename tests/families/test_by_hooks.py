"""The families of `by_hooks`: every value and its edits against raw hooks, traced passes against plain ones."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from cutaway import StandardizedTransformer
from cutaway.model.inputs import prompt_inputs
from cutaway.vocabulary import COMMON
from tests.families import by_hooks, native
from tests.families.models import APART, IDS, PROMPTS, build, left_padded

CASES = pytest.mark.parametrize(
    ("kind", "attention"),
    [(kind, attention) for kind in by_hooks.PLACES for attention in by_hooks.kernels(kind)],
)
LAYER = 1


@lru_cache(maxsize=32)
def plain(kind: str, attention: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    return build(APART[kind](), attention, dtype)


@lru_cache(maxsize=32)
def wrapped(kind: str, attention: str, dtype: torch.dtype = torch.float32) -> StandardizedTransformer:
    return StandardizedTransformer(plain(kind, attention, dtype), check=False)


def close(found: Tensor, expected: Tensor, name: str, attention: str) -> None:
    if attention == "eager" or name not in native.STEPS:
        assert torch.equal(found, expected), name
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, msg=name)


@CASES
def test_every_value_is_what_a_raw_hook_sees(kind: str, attention: str) -> None:
    model = wrapped(kind, attention)
    served = {name for name, row in COMMON.items() if not row.derived and model.support()[name].available}
    assert served == set(by_hooks.places(kind, attention)) | {"input_ids", "attention_mask", "logits"}
    for name in by_hooks.places(kind, attention):
        path = native.path_of(name, LAYER)
        found = model.read(IDS, path)[path]
        close(found, by_hooks.value(plain(kind, attention), kind, name, LAYER), name, attention)


@CASES
def test_an_edit_does_what_the_same_edit_by_a_raw_hook_does(kind: str, attention: str) -> None:
    model = wrapped(kind, attention)
    for name in by_hooks.places(kind, attention):
        with model.hooks({native.path_of(name, LAYER): _shifted}):
            found = model.read(IDS, "logits")["logits"]
        close(found, by_hooks.edited_logits(plain(kind, attention), kind, name, LAYER, _shifted), name, attention)
        assert not torch.equal(found, model.read(IDS, "logits")["logits"]), name


def _shifted(value: Tensor) -> Tensor:
    return value + torch.linspace(-1, 1, value[0].numel()).view(value[0].shape).to(value.dtype)


@CASES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_traced_pass_is_the_plain_one_and_passes_its_check(kind: str, attention: str, dtype: torch.dtype) -> None:
    hf: Any = plain(kind, attention, dtype)
    model = wrapped(kind, attention, dtype)
    for prompt in (IDS, left_padded()):
        with torch.no_grad():
            expected = hf(**prompt_inputs(model._subject, prompt, None)).logits
        with model.trace(prompt):
            for layer in model.layers:
                layer.layer_output
            logits = model.logits
        assert torch.equal(logits, expected)
    assert sum(result.cases for result in model.check()) > 60


@CASES
def test_a_padded_rows_logits_are_the_single_prompts(kind: str, attention: str) -> None:
    model = wrapped(kind, attention)
    together = model.read(PROMPTS, "logits")["logits"]
    for row, prompt in enumerate(PROMPTS):
        alone = model.read([prompt], "logits")["logits"][0]
        torch.testing.assert_close(together[row, -len(prompt) :], alone, rtol=1e-4, atol=1e-4)


@CASES
def test_generation_is_the_plain_models(kind: str, attention: str) -> None:
    hf: Any = plain(kind, attention)
    inputs = left_padded()
    expected = hf.generate(**inputs, max_new_tokens=4, do_sample=False)
    assert torch.equal(wrapped(kind, attention).generate(inputs, max_new_tokens=4, do_sample=False).output, expected)
