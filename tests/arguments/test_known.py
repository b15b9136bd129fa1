"""Every argument of a call is used, as plain transformers uses it, or refused with near names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, BatchEncoding, DynamicCache, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cutaway import StandardizedTransformer
from cutaway.errors import InputError
from tests import tiny
from tests.families import models

FAMILIES = ("phi", "llama", "gpt2", "neox")
IDS = models.IDS
ONES = torch.ones_like(IDS)


def plain(family: str, attention: str = "sdpa") -> PreTrainedModel:
    return tiny.plain(attention=attention) if family == "phi" else models.plain(family, attention)


def wrapped(family: str, attention: str = "sdpa") -> StandardizedTransformer:
    return StandardizedTransformer(plain(family, attention), check=False)


def calls(model: StandardizedTransformer) -> dict[str, Any]:
    return {"trace": model.trace, "read": model.read, "scan": model.scan, "generate": model.generate}


MISSPELT = {
    "attention_maks": "attention_mask",
    "positions_ids": "position_ids",
    "logit_to_keep": "logits_to_keep",
    "use_cahce": "use_cache",
    "output_hidden_state": "output_hidden_states",
    "return_dicts": "return_dict",
    "lables": "labels",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_argument_is_refused_with_the_right_one(family: str, name: str) -> None:
    for call in calls(wrapped(family)).values():
        with pytest.raises(InputError, match=MISSPELT[name]):
            call(IDS, **{name: True})


@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_of_other_calls_and_of_nobody_are_refused(family: str) -> None:
    model = wrapped(family)
    for call in (model.trace, model.read, model.scan):
        for name in ("batch_size", "max_new_tokens", "cache_position", "head_mask", "device"):
            with pytest.raises(InputError, match=name):
                call(IDS, **{name: 1})
    for call in (model.read, model.scan, model.generate):
        with pytest.raises(InputError, match="`grad`"):
            call(IDS, grad=True)
    with pytest.raises(InputError, match="'grad'"):
        model.trace(IDS, gradd=True)


@pytest.mark.parametrize("name", ["max_new_token", "stopping_critera", "num_beam", "streamr", "tempreature"])
def test_a_misspelt_argument_of_generate_is_refused_with_the_right_one(name: str) -> None:
    right = {"max_new_token": "max_new_tokens", "stopping_critera": "stopping_criteria", "num_beam": "num_beams"}
    right |= {"streamr": "streamer", "tempreature": "temperature"}
    with pytest.raises(InputError, match=f"'{right[name]}'"):
        tiny.shared().generate(IDS, **{name: 1})


KEPT: dict[str, dict[str, Any]] = {
    "use_cache": {"use_cache": True},
    "no cache": {"use_cache": False},
    "a tuple": {"return_dict": False},
    "hidden states": {"output_hidden_states": True},
    "some hidden states": {"output_hidden_states": [1]},
    "labels": {"labels": IDS},
    "a loss over a number": {"labels": IDS, "num_items_in_batch": torch.tensor(7)},
    "an ignored label": {"labels": IDS, "ignore_index": 7},
    "shifted labels": {"labels": IDS, "shift_labels": IDS.roll(-1, 1)},
    "the last logits": {"logits_to_keep": 1},
    "some logits": {"logits_to_keep": torch.tensor([0, 2])},
    "positions": {"position_ids": torch.arange(6)[None] + 3},
    "both ways": {"is_causal": False},
    "nothing": {"cache": None, "labels": None, "output_attentions": False},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("arguments", KEPT.values(), ids=KEPT)
def test_what_the_model_uses_does_what_it_does_in_transformers(family: str, arguments: dict[str, Any]) -> None:
    hf, model = plain(family), wrapped(family)
    hf.loss_type = "ForCausalLM"  # GPT-2 warns where it is not said
    with torch.no_grad():
        output = hf(input_ids=IDS, attention_mask=ONES, **arguments)
    expected = output[0] if isinstance(output, tuple) else output.logits
    with model.trace(IDS, **arguments):
        stream = model.layers[1].layer_output
        logits = model.logits
        whole = model.output
    assert torch.equal(logits, expected)
    assert stream.shape == (3, 6, 32)
    assert torch.equal(model.read(IDS, "logits", **arguments)["logits"], expected)
    with model.scan(IDS, **arguments):
        assert model.logits.shape == expected.shape
    assert type(whole) is type(output)
    if not isinstance(output, tuple):
        assert_equal(whole.loss, output.loss)
        assert_equal(whole.hidden_states, output.hidden_states)
        assert (whole.cache is None) == (output.cache is None)


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    if isinstance(one, Tensor):
        assert torch.equal(one, other)


@pytest.mark.parametrize("family", FAMILIES)
def test_patterns_are_returned_by_eager_attention_and_refused_of_another(family: str) -> None:
    hf, model = plain(family, "eager"), wrapped(family, "eager")
    with torch.no_grad():
        expected = hf(input_ids=IDS, attention_mask=ONES, output_attentions=True).attentions
    with model.trace(IDS, output_attentions=True):
        pattern = model.layers[1].self_attn.attention_probabilities
        returned = model.output.attentions
    assert len(expected) == 3
    assert_equal(returned, expected)
    assert torch.equal(pattern, expected[1])
    with pytest.raises(InputError, match="attention_probabilities"):
        wrapped(family, "sdpa").trace(IDS, output_attentions=True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("num_items_in_batch", torch.tensor(3), "labels"),
        ("cu_seq_lens_q", torch.tensor([0, 3, 6]), "flash attention"),
        ("max_length_k", 3, "flash attention"),
        ("output_router_logits", True, "does not read it"),
        ("seq_idx", IDS, "does not read it"),
        ("ignore_index", 3, "no effect"),
    ],
)
def test_what_transformers_knows_and_this_call_does_not_use_is_refused_with_the_reason(
    family: str, name: str, value: Any, why: str
) -> None:
    hf, model = plain(family), wrapped(family)
    with torch.no_grad():
        without = hf(input_ids=IDS, attention_mask=ONES).logits
        assert torch.equal(hf(input_ids=IDS, attention_mask=ONES, **{name: value}).logits, without)
    for call in (model.trace, model.read, model.scan):
        with pytest.raises(InputError, match=why):
            call(IDS, **{name: value})


def test_segments_are_for_models_that_have_them() -> None:
    encoding = BatchEncoding({"input_ids": IDS, "attention_mask": ONES, "token_type_ids": ONES * 2})
    hf = plain("gpt2")
    with torch.no_grad():
        expected = hf(**encoding).logits
    assert not torch.equal(expected, hf(input_ids=IDS, attention_mask=ONES).logits)
    assert torch.equal(wrapped("gpt2").read(encoding, "logits")["logits"], expected)
    for family in ("phi", "llama", "neox"):
        for call in calls(wrapped(family)).values():
            with pytest.raises(InputError, match="return_token_type_ids=False"):
                call(encoding)


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_of_a_mapping_are_arguments_too(family: str) -> None:
    for call in calls(wrapped(family)).values():
        with pytest.raises(InputError, match="attention_mask"):
            call({"input_ids": IDS, "attention_maks": ONES})
        with pytest.raises(InputError, match="pop"):
            call({"input_ids": IDS, "offset_mapping": IDS})


def test_an_argument_is_given_once() -> None:
    for call in calls(tiny.shared()).values():
        with pytest.raises(InputError, match="twice"):
            call(IDS, input_ids=IDS)
        with pytest.raises(InputError, match="twice"):
            call({"input_ids": IDS, "position_ids": IDS}, position_ids=IDS)
        with pytest.raises(InputError, match="twice"):
            call({"input_ids": IDS, "attention_mask": ONES}, attention_mask=ONES)
    with pytest.raises(InputError, match="`inputs`"):
        tiny.shared().generate(IDS, inputs=IDS, max_new_tokens=1)


def test_a_cache_by_its_former_name() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with torch.no_grad():
        one, other = (hf(input_ids=IDS[:, :4], attention_mask=ONES[:, :4]).cache for _ in range(2))
        expected = hf(input_ids=IDS[:, 4:], attention_mask=ONES, cache=one).logits
    assert isinstance(other, DynamicCache)
    with pytest.warns(FutureWarning, match="Use `cache`"):
        logits = model.read(IDS[:, 4:], "logits", past_key_values=other)["logits"]
    assert torch.equal(logits, expected)


class Louder(type(tiny.fresh())):  # type: ignore[misc]
    """A user's class, whose forward has an argument of its own and reads the rest of its base's."""

    def forward(self, *args: Any, louder: float = 1.0, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * louder
        return output


def test_a_subclass_names_arguments_of_its_own_and_keeps_those_of_its_base() -> None:
    hf = tiny.fresh()
    with torch.no_grad():
        expected = hf(input_ids=IDS, attention_mask=ONES, logits_to_keep=2).logits * 3
    hf.__class__ = Louder
    from cutaway.subject.arguments import forward_arguments

    given = {"louder": 3.0, "logits_to_keep": 2}
    arguments = forward_arguments(hf, tiny.shared().trace, IDS, {"input_ids": IDS, "attention_mask": ONES}, given)
    with torch.no_grad():
        assert torch.equal(hf(**arguments).logits, expected)
    with pytest.raises(InputError, match="'louder'"):
        forward_arguments(hf, tiny.shared().trace, IDS, {"input_ids": IDS}, {"loudr": 3.0})


def test_a_users_attention_function_names_arguments_of_its_own() -> None:
    def cold(module: Any, query: Tensor, *rest: Any, temperature: float = 1.0, **kwargs: Any) -> Any:
        return sdpa_attention_forward(module, query / temperature, *rest, **kwargs)

    AttentionInterface.register("cold", cold)
    AttentionMaskInterface.register("cold", AttentionMaskInterface._global_mapping["sdpa"])
    try:
        hf = tiny.fresh(attention="cold")
        model = StandardizedTransformer(hf, check=False)
        with torch.no_grad():
            expected = hf(input_ids=IDS, attention_mask=ONES, temperature=2.0).logits
            assert not torch.equal(expected, hf(input_ids=IDS, attention_mask=ONES).logits)
        assert torch.equal(model.read(IDS, "logits", temperature=2.0)["logits"], expected)
        with model.trace(IDS) as _, model.trace(IDS, temperature=2.0):
            queries = model.layers[0].self_attn.attention_queries
            assert torch.equal(model.logits, expected)
        assert queries.shape == (3, 4, 6, 8)
        with pytest.raises(InputError, match="'temperature'"):
            model.read(IDS, "logits", temperatur=2.0)
    finally:
        del AttentionInterface._global_mapping["cold"], AttentionMaskInterface._global_mapping["cold"]


def test_all_that_generate_takes_is_taken() -> None:
    hf, model = tiny.plain(), tiny.shared()
    arguments: dict[str, Any] = {"max_new_tokens": 3, "num_beams": 2, "use_cache": False, "output_hidden_states": True}
    arguments |= {"return_dict_in_generate": True, "logits_processor": [], "prefix_allowed_tokens_fn": None}
    expected = hf.generate(IDS, attention_mask=ONES, pad_token_id=0, **arguments)
    with model.generate(IDS, **arguments) as run:
        pass
    assert torch.equal(run.output.sequences, expected.sequences)

    def own_loop(hf: Any, input_ids: Tensor, *, appended: int = 0, **_: Any) -> Tensor:
        return torch.cat([input_ids, torch.full_like(input_ids[:, :1], appended)], dim=1)

    with model.generate(IDS, custom_generate=own_loop, appended=9, max_new_tokens=1) as run:
        pass
    assert torch.equal(run.output, torch.cat([IDS, torch.full((3, 1), 9)], dim=1))
    with pytest.raises(InputError, match="'appended'"):
        model.generate(IDS, custom_generate=own_loop, apended=9)
