"""Odd models that are valid open without a word: nothing in `check()` depends on how far logits move."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from cutaway import StandardizedTransformer
from cutaway.errors import UntestedWarning
from tests.check import odd

FAMILIES = pytest.mark.parametrize("family", odd.FAMILIES)
KERNELS = pytest.mark.parametrize("attention", ["sdpa", "eager"])
EVERYTHING = 9
"""Promises that are put to the test, without `layer_mid` and the comparison with a kernel."""


def opens(hf: Any) -> Any:
    """Opens a model as users do, and says what was checked; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = StandardizedTransformer(hf).check()
    assert not report.untested
    assert len(report) >= EVERYTHING
    assert all(result.cases for result in report)
    return report


@FAMILIES
@pytest.mark.parametrize("how", odd.SPOILT)
def test_odd_weights(family: str, how: str) -> None:
    opens(odd.spoilt(family, how, "eager" if (len(family) + len(how)) % 2 else "sdpa"))


@FAMILIES
@pytest.mark.parametrize("size", odd.SIZES)
def test_odd_sizes(family: str, size: str) -> None:
    attention = "eager" if len(size) % 2 else "sdpa"
    opens(odd.model(family, attention, **odd.SIZES[size]))


@FAMILIES
@KERNELS
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_every_dtype(family: str, attention: str, dtype: torch.dtype) -> None:
    """GPT-2 takes its softmax in its own dtype, the others in float32; eager in float64, they have NaN for padding."""
    opens(odd.model(family, attention, dtype))


def test_the_modules_of_a_block_may_be_the_identity() -> None:
    """Its output is its input, so what is spoilt at one would be the other's too."""
    hf: Any = odd.model("llama")
    hf.model.layers[1].input_layernorm = nn.Identity()
    hf.model.layers[2].post_attention_layernorm = nn.Identity()
    hf.model.layers[0].self_attn.o_proj = nn.Identity()
    hf.model.norm = nn.Identity()
    opens(hf)


class Constant(nn.Module):
    """Returns what it keeps, as an ablation by a mean may."""

    def __init__(self, kept: Tensor) -> None:
        super().__init__()
        self.register_buffer("weighed", kept)
        self.kept: dict[Any, Tensor] = {}

    def forward(self, hidden: Tensor) -> Tensor:
        if hidden.is_meta:
            return hidden[..., : self.weighed.shape[-1]]
        return self.kept.setdefault(hidden.shape[:2], self.weighed.expand(*hidden.shape[:2], -1).clone())


def test_what_a_module_keeps_is_as_it_was() -> None:
    hf: Any = odd.model("llama")
    constant = hf.model.layers[1].mlp.act_fn = Constant(torch.randn(96))
    model = StandardizedTransformer(hf, check=False)
    before = {name: tensor.clone() for name, tensor in hf.state_dict().items()}
    model.check()
    for tensor in constant.kept.values():
        assert torch.equal(tensor, constant.weighed.expand_as(tensor))
    assert all(torch.equal(tensor, before[name]) for name, tensor in hf.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in hf.modules())


def sdpa_by_another_name(module: Any, *args: Any, **kwargs: Any) -> Any:
    return sdpa_attention_forward(module, *args, **kwargs)


def linear(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any) -> Any:
    groups = query.shape[1] // key.shape[1]
    products = (query @ key.repeat_interleave(groups, 1).mT).tril()
    return (products @ value.repeat_interleave(groups, 1)).transpose(1, 2).contiguous(), None


@pytest.fixture
def own_attention() -> Iterator[None]:
    AttentionInterface.register("own", sdpa_by_another_name)
    AttentionMaskInterface.register("own", sdpa_mask)
    AttentionInterface.register("linear", linear)
    try:
        yield
    finally:
        for name in ("own", "linear"):
            AttentionInterface._global_mapping.pop(name, None)
            AttentionMaskInterface._global_mapping.pop(name, None)


@FAMILIES
def test_a_users_own_attention_function(family: str, own_attention: None) -> None:
    opens(odd.model(family, "own"))


def test_a_users_own_attention_that_is_not_the_familys_is_told(own_attention: None) -> None:
    hf = odd.model("gpt2", "linear")
    with pytest.warns(UntestedWarning, match=r"head outputs of linear.*layer 0.*eager attention's") as caught:
        model = StandardizedTransformer(hf)
    assert len(caught) == 1
    with pytest.warns(UntestedWarning):
        report = model.check()
    assert [skipped.promise.split()[0] for skipped in report.untested] == ["attention_probabilities"]
    assert "– untested: attention_probabilities mix the values" in repr(report)


DROPOUT: dict[str, dict[str, float]] = {
    "phi": {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attention_dropout": 0.5},
    "llama": {"attention_dropout": 0.5},
    "gpt2": {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5},
    "neox": {"hidden_dropout": 0.5, "attention_dropout": 0.5},
}


@FAMILIES
@KERNELS
def test_a_model_in_training_is_checked_as_in_evaluation_and_stays_in_training(family: str, attention: str) -> None:
    hf = odd.model(family, attention, **DROPOUT[family]).train()
    flags = [module.training for module in hf.modules()]
    inputs = {"input_ids": torch.tensor([[1, 2, 3]])}
    with pytest.warns(UserWarning, match="training mode") as caught:
        model = StandardizedTransformer(hf)
    assert len(caught) == 1
    report = model.check()
    assert not report.untested
    assert [module.training for module in hf.modules()] == flags
    with torch.no_grad():
        assert not torch.equal(hf(**inputs).logits, hf(**inputs).logits)


def test_a_model_whose_passes_differ_is_told() -> None:
    hf: Any = odd.model("llama")
    hf.model.layers[1].mlp.register_forward_hook(lambda _module, _args, output: output + torch.rand(()))
    with pytest.warns(UntestedWarning, match="two passes of the plain model differ"):
        report = StandardizedTransformer(hf, check=False).check()
    assert len(report.untested) == 2


def test_a_model_whose_rows_depend_on_each_other_is_told() -> None:
    hf: Any = odd.model("llama")
    hf.model.layers[1].mlp.register_forward_hook(lambda _module, _args, output: output + 0 * output.mean(0))
    with pytest.warns(UntestedWarning, match="a row of a batch depends on the others"):
        report = StandardizedTransformer(hf, check=False).check()
    assert [skipped.promise.split(",")[0] for skipped in report.untested] == [
        "an edit of each writable value reaches the next block or the logits"
    ]


def test_a_model_that_fails_by_itself_is_told() -> None:
    hf: Any = odd.model("llama")
    model = StandardizedTransformer(hf, check=False)
    model.support()

    def fail(_module: Any, _args: Any) -> None:
        raise ZeroDivisionError("its own reason\nand more")

    hf.model.layers[1].register_forward_pre_hook(fail)
    with pytest.warns(UntestedWarning, match="every promise .*ZeroDivisionError: its own reason"):
        assert len(model.check()) == 0


def test_without_weights_shapes_are_checked_and_the_rest_is_said_to_be_untested() -> None:
    with torch.device("meta"):
        hf = type(odd.model("llama"))(odd.config("llama")).eval()
    report = StandardizedTransformer(hf).check()
    assert [result.promise for result in report] == ["every value has the shape of its layout"]
    assert str(report).endswith("  – untested: everything but shapes: no weights are loaded")
