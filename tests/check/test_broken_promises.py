"""Each promise broken on purpose, in one layer, by an engine, a family file or a model; `check()` names it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
import transformers.models.llama.modeling_llama as modeling_llama
from torch import Tensor, nn

from cutaway import StandardizedTransformer
from cutaway.errors import CheckError
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import Slot, input_of, output_of
from cutaway.vocabulary import COMMON, ValuePath
from tests.check import odd
from tests.check.tampering import next_up, tamper

LAYER = 1
_INSIDE = ("arguments", "softmax", "pattern", "result")


def opened(family: str = "llama", attention: str = "sdpa") -> Any:
    return StandardizedTransformer(odd.model(family, attention), check=False)


def with_site(name: str, site: Any, family: str = "llama") -> Any:
    """A model whose family file has another site for a value."""
    model = opened(family)
    subject = model._subject
    other = subject.of_family(replace(subject.family, values={**subject.family.values, name: site}))
    other.__dict__.pop("survey", None)
    object.__setattr__(model, "_subject", other)
    return model


def complaint(model: Any) -> str:
    with pytest.raises(CheckError) as caught:
        model.check()
    return str(caught.value)


def hook_on(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Changes a module's output, a tuple's first tensor, in the plain model too."""

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    module.register_forward_hook(hook)


def hook_before(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    def hook(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": change(kwargs["hidden_states"])}

    module.register_forward_pre_hook(hook, with_kwargs=True)


# Values, and each to others.


def test_a_shape() -> None:
    message = complaint(with_site("attention_premix", input_of("o_proj", argument="input")))
    assert message.startswith("`layers.0.self_attn.attention_premix` has shape [3, 6, 32]")
    assert "HeadOutputs [batch seq num_heads head_dim] says [3, 6, 4, 8]" in message


@pytest.mark.parametrize("family", odd.FAMILIES)
def test_the_stream_by_one_rounding(family: str) -> None:
    model = opened(family)
    hook_on(odd.parts(model.hf)[0][LAYER], next_up)
    assert complaint(model).startswith(f"`layers.1.layer_output` is not {' + '.join(model._subject.family.stream)}")


def test_the_stream_between_by_one_rounding() -> None:
    model = opened()
    hook_before(model.hf.model.layers[LAYER].post_attention_layernorm, next_up)
    assert complaint(model).startswith("`layers.1.layer_mid` is not layer_input + attention_output")


def off(real: Any, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Any:
    """An eager attention function whose pattern and result are changed in one layer."""

    def eager(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **rest: Any) -> Any:
        if module.layer_idx != LAYER:
            return real(module, query, key, value, mask, scaling=scaling, **rest)
        keys, values = (modeling_llama.repeat_kv(heads, module.num_key_value_groups) for heads in (key, value))
        scores = query @ keys.mT * scaling
        scores = scores if mask is None else scores + mask
        pattern = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        pattern, result = change(nn.functional.dropout(pattern * 1.0001, training=False), pattern @ values)
        return result.transpose(1, 2).contiguous(), pattern

    return eager


def test_a_pattern_that_is_not_the_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    real = modeling_llama.eager_attention_forward
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", off(real, lambda pattern, result: (pattern, result)))
    message = complaint(opened(attention="eager"))
    assert message.startswith("`layers.1.self_attn.attention_probabilities` is not softmax(attention_scores)")


def test_a_pattern_that_is_not_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    real = modeling_llama.eager_attention_forward

    def other_scale(module: Any, query: Tensor, *args: Any, **kwargs: Any) -> Any:
        return real(module, query * (1 + 0.01 * (module.layer_idx == LAYER)), *args, **kwargs)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", other_scale)
    message = complaint(opened())
    assert message.startswith("`layers.1.self_attn.attention_probabilities` is not the pattern of sdpa attention")
    assert "head outputs of layer 1" in message


def test_heads_side_by_side_by_one_rounding() -> None:
    model = opened()
    hook_before(model.hf.model.layers[LAYER].self_attn.o_proj, next_up)
    assert complaint(model).startswith("`layers.1.self_attn.attention_premix` is not the head outputs side by side")


def test_the_output_projection() -> None:
    model = opened()
    hook_on(model.hf.model.layers[LAYER].self_attn, lambda output: output * 1.00001)
    assert complaint(model).startswith("`layers.1.self_attn.attention_output` is not o_proj(attention_premix)")


def test_the_lens_by_one_rounding() -> None:
    model = opened()

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        output.last_hidden_state = next_up(output.last_hidden_state)
        return output

    model.hf.model.register_forward_hook(hook)
    assert complaint(model).startswith("`logits` is not project_on_vocab(the last layer_output)")


def test_logits_that_are_not_what_is_returned_by_one_rounding() -> None:
    model = with_site("logits", output_of("lm_head"))

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        output.logits = next_up(output.logits)
        return output

    model.hf.register_forward_hook(hook)
    assert complaint(model).startswith("`logits` is not what the model returns")


# A traced pass is the plain one.


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("moment", ["arguments", "softmax", "pattern", "result"])
def test_an_interior_that_changes_the_logits_where_it_looks(
    moment: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(attention=attention)

    def rounds(callback: Any, passing: Any) -> Any:
        callback(passing)
        return {**passing, "query": next_up(passing["query"])} if moment == "arguments" else next_up(passing)

    tamper(monkeypatch, model.hf.model.layers[LAYER].self_attn, moment, rounds)
    message = complaint(model)
    assert message.startswith("looking at `layers.1.self_attn.attention_")
    assert "changes the logits of the plain model: by" in message
    values = {"arguments": "attention_queries", "softmax": "attention_scores", "pattern": "attention_probabilities"}
    assert values.get(moment, "attention_head_outputs") in message


# Edits arrive.

INSIDE = [name for name, value in COMMON.items() if name in USUAL_SITES and USUAL_SITES[name].moment in _INSIDE]
PLACES = [
    (family, name, attention)
    for family in odd.FAMILIES
    for name, value in COMMON.items()
    for attention in (("sdpa", "eager") if name in INSIDE else ("sdpa",))
    if not value.read_only and not (family in ("phi", "neox") and name == "layer_mid")
]

shared = lru_cache(opened)
"""A model that a test leaves as it is."""


def sharing(model: Any, name: str) -> set[str]:
    """The values that are one tensor with a value."""
    subject = model._subject
    places = {str(path): subject.address(path).place for path in subject.value_paths if not path.value.derived}
    path = str(ValuePath(name, None if COMMON[name].host == "model" else LAYER))
    return {other for other, place in places.items() if place == places[path]}


@pytest.mark.parametrize(("family", "name", "attention"), PLACES)
def test_an_edit_that_is_dropped(family: str, name: str, attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared(family, attention)
    path = ValuePath(name, None if COMMON[name].host == "model" else LAYER)
    address = model._subject.address(path)
    original = Slot.write

    def write(self: Slot, passing: Any, tensor: Tensor) -> Any:
        written.append(self)
        return original(self, passing, tensor)

    def forgets(callback: Any, passing: Any) -> Any:
        """What is written to this slot; others at the moment are served."""
        written.clear()
        changed = callback(copy.copy(passing))
        return None if address.slot in written else changed

    written: list[Slot] = []
    monkeypatch.setattr(Slot, "write", write)
    tamper(monkeypatch, address.module, address.moment, forgets)
    message = complaint(model)
    assert any(f"`{other}`" in message for other in sharing(model, name)), message
    assert "does not arrive" in message


def test_ids_that_are_dropped_where_all_embeddings_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    model = StandardizedTransformer(odd.spoilt("llama", "equal_embeddings"), check=False)

    def forgets(callback: Any, passing: Any) -> None:
        callback(copy.copy(passing))

    tamper(monkeypatch, model.hf, "enter", forgets)
    message = complaint(model)
    assert message == "an edit of `input_ids` does not arrive: the model's forward is given another one."


def test_a_stream_whose_edit_does_not_reach_what_passes_by() -> None:
    site = input_of("post_attention_layernorm")
    message = complaint(with_site("layer_mid", site))
    assert message.startswith("an edit of `layers.0.layer_mid`")
    assert "does not arrive everywhere" in message


def test_a_value_whose_edit_reaches_nothing() -> None:
    """The block goes on with an activation of its own."""
    model = opened()
    mlp = model.hf.model.layers[LAYER].mlp

    def forward(x: Tensor) -> Tensor:
        mlp.act_fn(mlp.gate_proj(x))
        return mlp.down_proj(nn.functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))

    mlp.forward = forward
    model._subject.__dict__.pop("survey", None)
    message = complaint(model)
    assert message.startswith("an edit of `layers.1.mlp.mlp_activation` does not arrive: NaN written into all of it")
    assert message.endswith("does not come through to `layers.2.layer_input`.")


def test_a_slot_that_drops_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slot, "write", lambda self, passing, tensor: passing)
    assert complaint(opened()).startswith("an edit of `input_ids` does not arrive")


def test_a_slot_that_writes_another_number_by_one_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Slot.write

    def write(self: Slot, passing: Any, tensor: Tensor) -> Any:
        return original(self, passing, next_up(tensor) if self.split else tensor)

    monkeypatch.setattr(Slot, "write", write)
    message = complaint(opened())
    assert message.startswith("an edit of `layers.0.self_attn.queries_before_rotary` does not arrive")
    assert message.endswith("is not what was written, bit for bit.")


def test_a_slot_that_hands_out_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Slot.read
    monkeypatch.setattr(
        Slot, "read", lambda self, *args: original(self, *args).clone() if self.split else original(self, *args)
    )
    message = complaint(opened())
    assert message.startswith("an edit of `layers.0.self_attn.queries_before_rotary` in place does not arrive")


def test_a_value_that_a_pass_does_not_come_by() -> None:
    model = opened()
    model.support()
    model.hf.model.layers[LAYER].mlp = type(model.hf.model.layers[LAYER].mlp)(model.hf.config)
    assert complaint(model).startswith("a pass of this model does not come by `layers.1.mlp")
