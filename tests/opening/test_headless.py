"""Models without a language-model head: they open, are checked, and say of logits what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
)

from cutaway import StandardizedTransformer
from cutaway.errors import CheckError, UnavailableValueError, UntestedWarning
from tests import tiny
from tests.families import models

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "phi": tiny.config,
    "llama": models.llama,
    "gpt2": models.gpt2,
    "neox": models.neox,
}
CASES = [
    *(pytest.param(AutoModel, family, id=f"{family}-base") for family in CONFIGS),
    *(pytest.param(AutoModelForSequenceClassification, family, id=f"{family}-sequence") for family in CONFIGS),
    pytest.param(AutoModelForTokenClassification, "gpt2", id="gpt2-token"),
    pytest.param(AutoModelForQuestionAnswering, "llama", id="llama-answers"),
]


def _built(auto: Any, family: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return auto.from_config(CONFIGS[family]()).eval()


def _result(output: Any) -> Tensor:
    return next(value for value in output.values() if isinstance(value, Tensor))


@pytest.mark.parametrize(("auto", "family"), CASES)
def test_a_model_without_a_head_opens_and_is_checked(auto: Any, family: str) -> None:
    hf = _built(auto, family)
    model = StandardizedTransformer(hf)
    report = model.check()
    assert not report.untested
    inside: list[Tensor] = []
    handle = hf.base_model.register_forward_hook(lambda _m, _args, output: inside.append(output.last_hidden_state))
    with torch.no_grad():
        plain = _result(hf(**tiny.as_inputs(tiny.IDS)))
    handle.remove()
    assert torch.equal(model.read(tiny.IDS, "final_norm_output")["final_norm_output"], inside[0])
    with model.trace(tiny.IDS):
        assert torch.equal(_result(model.output), plain)
    last = list(_blocks(hf))[1]
    handle = last.register_forward_hook(_plus_one)
    with torch.no_grad():
        edited = _result(hf(**tiny.as_inputs(tiny.IDS)))
    handle.remove()
    with model.trace(tiny.IDS):
        model.layers[1].layer_output += 1
        assert torch.equal(_result(model.output), edited)
    assert not torch.equal(edited, plain)


def _blocks(hf: nn.Module) -> nn.ModuleList:
    return next(module for module in hf.modules() if isinstance(module, nn.ModuleList) and len(module) == 3)


def _plus_one(_module: nn.Module, _args: Any, output: Any) -> Any:
    return (output[0] + 1, *output[1:]) if isinstance(output, tuple) else output + 1


@pytest.mark.parametrize(("auto", "family"), CASES)
def test_what_needs_the_head_says_that_there_is_none(auto: Any, family: str) -> None:
    model = StandardizedTransformer(_built(auto, family), check=False)
    says = pytest.raises(UnavailableValueError, match=r"has no language-model head.*load the checkpoint as a ")
    for name in ("logits", "next_token_probs", "lm_head_output"):
        with says:
            model.read(tiny.IDS, name)
        with says, model.trace(tiny.IDS):
            getattr(model, name)
    with says:
        model.generate(tiny.IDS, max_new_tokens=2)
    with says:
        model.project_on_vocab(torch.zeros(2, 32))
    with says:
        model.lm_head
    assert not model.support()["logits"].available
    str(model), model._repr_html_()


def test_a_broken_promise_of_a_base_model_is_named() -> None:
    hf = _built(AutoModel, "phi")

    def drops(_module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return args[0]

    hf.layers[1].mlp.register_forward_hook(drops)  # what the MLP computes goes nowhere
    with pytest.raises(CheckError, match=r"layers\.1\.mlp\.(mlp_neurons|mlp_activation)"):
        StandardizedTransformer(hf)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_classifier_without_a_padding_token_takes_one_row_at_a_time(family: str) -> None:
    hf = _built(AutoModelForSequenceClassification, family)
    hf.config.pad_token_id = None
    with pytest.warns(UntestedWarning, match=r"reaches the next block.*\(the model takes one row at a time\)\.$"):
        model = StandardizedTransformer(hf)
    with pytest.warns(UntestedWarning):
        report = model.check()
    assert len(report.untested) == 1
    assert any("edit of each writable value takes its place" in result.promise for result in report)
    inner = list(_blocks(hf))[1]
    seen: list[Tensor] = []
    handle = inner.register_forward_hook(
        lambda _m, _args, output: seen.append(output[0] if isinstance(output, tuple) else output)
    )
    with torch.no_grad():
        plain = hf(**tiny.as_inputs(tiny.IDS[:1])).logits
        with pytest.raises(ValueError, match="if no padding token is defined"):
            hf(**tiny.as_inputs(tiny.IDS))
    handle.remove()
    with model.trace(tiny.IDS[:1]):
        assert torch.equal(_result(model.output), plain)
    assert torch.equal(model.read(tiny.IDS, "layers.1.layer_output")["layers.1.layer_output"], seen[1])
    with pytest.raises(ValueError, match="if no padding token is defined") as told, model.trace(tiny.IDS):
        model.output
    assert "`model.hf.config.pad_token_id = …`, or give one row at a time" in told.value.__notes__[0]
    hf.config.pad_token_id = 0
    with model.trace(tiny.IDS):
        assert model.output.logits.shape[0] == 3
