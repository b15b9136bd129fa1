"""What inspects a model while it is traced finds what it always found: signatures, config, registries' answers."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import AttentionInterface, PhiConfig, PhiForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cutaway import StandardizedTransformer
from tests import tiny


@contextmanager
def reading(model: StandardizedTransformer) -> Iterator[None]:
    """Waits inside attention, at whose entrance it has waited before."""
    with model.trace(tiny.IDS):
        model.input_ids
        model.layers[1].self_attn.input
        model.layers[1].self_attn.attention_scores
        yield


def looks(module: nn.Module) -> dict[str, Any]:
    forward = module.forward
    return {
        "signature": inspect.signature(forward),
        "name": forward.__name__,
        "qualified name": forward.__qualname__,
        "module": forward.__module__,
        "docstring": inspect.getdoc(forward),
        "is a method": inspect.ismethod(forward),
        "of": id(forward.__self__),
        "function": inspect.unwrap(forward.__func__),
        "source": inspect.getsource(inspect.unwrap(forward)),
    }


def test_forward_looks_the_same_inside_and_outside() -> None:
    model = tiny.shared()
    parts = [model.hf, model.hf.model.layers[1], model.hf.model.layers[1].self_attn]
    before = [looks(part) for part in parts]
    with reading(model):
        assert [looks(part) for part in parts] == before
        assert "forward" in vars(parts[2])  # it does stand in
    with model.generate(tiny.IDS, max_new_tokens=2) as run:
        for _ in run:
            assert looks(model.hf) == before[0]
            assert "forward" not in vars(model.hf)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_config_is_left_alone(attention: str) -> None:
    model = tiny.shared("P", attention)
    config = model.hf.config
    state, setting = copy.deepcopy(config.__dict__), config._attn_implementation
    with reading(model):
        assert type(config._attn_implementation) is str
        assert config._attn_implementation == setting == attention
        assert hash(config._attn_implementation) == hash(attention)
        assert f"{config._attn_implementation}" == attention
        assert config.__dict__ == state
        assert copy.deepcopy(config)._attn_implementation == attention
        assert pickle.loads(pickle.dumps(config)).to_dict() == config.to_dict()
        fresh = PhiForCausalLM(copy.deepcopy(config))
        assert fresh.config._attn_implementation == attention


def test_the_registry_answers_as_before_and_lists_the_same_names() -> None:
    model = tiny.shared()
    names, sdpa = ALL_ATTENTION_FUNCTIONS.valid_keys(), ALL_ATTENTION_FUNCTIONS["sdpa"]
    signature = inspect.signature(ALL_ATTENTION_FUNCTIONS.get_interface)
    with reading(model):
        assert ALL_ATTENTION_FUNCTIONS.valid_keys() == names
        assert ALL_ATTENTION_FUNCTIONS["sdpa"] is sdpa
        assert inspect.signature(ALL_ATTENTION_FUNCTIONS.get_interface) == signature
        given = ALL_ATTENTION_FUNCTIONS.get_interface("sdpa", None)
        assert (given.__name__, inspect.signature(given)) == (sdpa.__name__, inspect.signature(sdpa))
        with pytest.raises(KeyError, match="not a valid attention implementation"):
            ALL_ATTENTION_FUNCTIONS.get_interface("none such", sdpa)
    assert "get_interface" not in vars(ALL_ATTENTION_FUNCTIONS)
    assert ALL_ATTENTION_FUNCTIONS.get_interface("sdpa", None) is sdpa


def test_a_setting_exchanged_in_the_body_is_kept() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    with model.trace(tiny.IDS):
        model.layers[0].self_attn.attention_scores
        hf.set_attn_implementation("eager")
    assert hf.config._attn_implementation == "eager"
    assert torch.equal(model.read(tiny.IDS, "logits")["logits"], tiny.logits_of(hf))


class WithABranch(PhiForCausalLM):
    """Takes another path where the setting is not a name that it knows, as sparse attentions do."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        if self.config._attn_implementation not in ("eager", "sdpa"):
            output.logits = output.logits * 0
        return output


def test_a_model_that_branches_on_the_setting_takes_its_own_path() -> None:
    hf = WithABranch(tiny.fresh().config).eval()
    hf.__class__.__name__ = "PhiForCausalLM"
    model = StandardizedTransformer(hf, check=False)
    assert torch.equal(model.read(tiny.IDS, "attention_values", "logits")["logits"], tiny.logits_of(hf))


def other_eager(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any) -> tuple[Tensor, None]:
    return (query + 2 * key - value).transpose(1, 2), None


class OtherAttention(nn.Module):
    """Of another file's kind: its eager function has another name."""

    is_causal = True
    training = False

    def forward(self, heads: Tensor, implementation: str) -> Tensor:
        interface = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, other_eager)
        return interface(self, heads, heads + 1, heads * 2, None, dropout=0.0, scaling=0.5)[0]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_another_model_has_its_own_kernel_meanwhile(implementation: str) -> None:
    heads, other = torch.randn(2, 4, 5, 8), OtherAttention()
    expected = other(heads, implementation)
    found: list[Tensor] = []

    def elsewhere() -> None:
        found.append(other(heads, implementation))

    with reading(tiny.shared()):
        found.append(other(heads, implementation))
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert len(found) == 2
    assert all(torch.equal(one, expected) for one in found)


@contextmanager
def registered(name: str, function: Callable[..., Any]) -> Iterator[None]:
    AttentionInterface.register(name, function)
    transformers.AttentionMaskInterface.register(name, transformers.AttentionMaskInterface._global_mapping["sdpa"])
    try:
        yield
    finally:
        del AttentionInterface._global_mapping[name], transformers.AttentionMaskInterface._global_mapping[name]


def test_a_users_own_attention_function_is_called() -> None:
    calls: list[Any] = []

    def own(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        calls.append(module)
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, *args, **kwargs)

    with registered("own", own):
        hf = PhiForCausalLM._from_config(
            PhiConfig(**{**tiny.fresh().config.to_dict(), "attn_implementation": "own"})
        ).eval()
        assert hf.config._attn_implementation == "own"
        expected = tiny.logits_of(hf)
        calls.clear()
        found = StandardizedTransformer(hf, check=False).read(tiny.IDS, "attention_queries", "logits")
        assert torch.equal(found["logits"], expected)
        assert len(calls) == hf.config.num_hidden_layers
