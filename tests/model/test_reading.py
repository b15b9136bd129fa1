"""`read`: many values in one pass, by any kind of name, in any order."""

from __future__ import annotations

import pytest
import torch

from cutaway.errors import UnavailableValueError, UnknownValueError
from tests import raw, tiny

OUTPUTS = [f"layers.{i}.layer_output" for i in range(tiny.LAYERS)]


@pytest.mark.parametrize(
    "names",
    [
        ["layer_output"],
        ["layers.*.layer_output"],
        OUTPUTS,
        OUTPUTS[::-1],
        [OUTPUTS],
        [tuple(OUTPUTS)],
        [lambda path: path.endswith("layer_output")],
        ["*.layer_output"],
        ["layers.0.layer_output", ["layers.-2.layer_output", "layers.-1.layer_output"]],
        ["layers.[0-2].layer_output", "layer_output"],
    ],
)
def test_the_same_selection_by_any_spelling(names: list) -> None:
    found = tiny.shared().read(tiny.IDS, *names)
    assert list(found) == OUTPUTS
    for i, path in enumerate(OUTPUTS):
        assert torch.equal(found[path], raw.value(tiny.plain(), tiny.as_inputs(tiny.IDS), "layer_output", i))


def test_without_names_everything_is_read_in_the_order_of_the_pass() -> None:
    found = tiny.shared().read(tiny.IDS)
    expected = {raw.path_of(name, layer) for name in raw.WRITABLE for layer in range(tiny.LAYERS)}
    heads = [
        f"layers.{layer}.self_attn.{one}_before_rotary" for layer in range(tiny.LAYERS) for one in ("queries", "keys")
    ]
    assert set(found) == {*expected, *heads, "next_token_probs"}
    assert all(isinstance(value, torch.Tensor) for value in found.values())
    order = list(found)
    assert order.index("layers.0.layer_output") < order.index("layers.1.layer_input") < order.index("logits")
    assert order.index("layers.1.self_attn.attention_scores") < order.index(
        "layers.1.self_attn.attention_probabilities"
    )


def test_derived_values_are_read_beside_the_others() -> None:
    found = tiny.shared().read(tiny.LEFT_PADDED, "next_token_probs", "input_size", "layers.0.layer_input")
    assert list(found) == ["input_size", "layers.0.layer_input", "next_token_probs"]
    assert tuple(found["input_size"]) == (3, 6)
    torch.testing.assert_close(found["next_token_probs"].sum(-1), torch.ones(3))


def test_values_read_are_plain_tensors_that_later_passes_leave_alone() -> None:
    model = tiny.shared()
    found = model.read(tiny.IDS, "layers.1.layer_output")["layers.1.layer_output"]
    kept = found.clone()
    with model.trace(tiny.IDS):
        model.layers[1].layer_output[:] = 0
        model.logits
    assert type(found) is torch.Tensor
    assert torch.equal(found, kept)
    assert not found.requires_grad


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("layers.*.layer_outptu", "'layers.*.layer_output'"),
        ("atention_scores", "'attention_scores'"),
        ("layers.7.layer_output", "'layers.2.layer_output'"),
        ("layers.1.mlp_output", "'layers.1.mlp.mlp_output'"),
        ("logit", "'logits'"),
    ],
)
def test_a_name_that_picks_nothing_is_an_error_with_near_names(name: str, near: str) -> None:
    with pytest.raises(UnknownValueError, match="nothing is called") as caught:
        tiny.shared().read(tiny.IDS, "logits", name)
    assert name in str(caught.value)
    assert near in str(caught.value)


def test_a_function_that_picks_nothing_is_an_error() -> None:
    with pytest.raises(UnknownValueError, match="the function given picks none"):
        tiny.shared().read(tiny.IDS, lambda path: False)


@pytest.mark.parametrize("name", ["layer_mid", "layers.*.layer_mid", "layers.1.layer_mid"])
def test_a_value_that_phi_lacks_says_why(name: str) -> None:
    model = tiny.shared()
    with pytest.raises(UnavailableValueError, match=r"layer_mid.*Phi's block is parallel"):
        model.read(tiny.IDS, name)
    with pytest.raises(UnavailableValueError, match="Phi's block is parallel"), model.trace(tiny.IDS):
        model.layers[1].layer_mid


def test_arguments_of_the_forward_are_passed_on() -> None:
    hf, model = tiny.plain(), tiny.shared()
    positions = torch.arange(6)[None] + 20
    with torch.no_grad():
        expected = hf(tiny.IDS, position_ids=positions).logits
    assert torch.equal(model.read(tiny.IDS, "logits", position_ids=positions)["logits"], expected)
    with torch.no_grad():
        expected = hf(tiny.IDS, logits_to_keep=1).logits
    with model.trace(tiny.IDS, logits_to_keep=1):
        assert torch.equal(model.logits, expected)
    with model.trace(tiny.IDS, output_hidden_states=True):
        model.layers[1].layer_output += 1
        hidden = model.output.hidden_states
    assert len(hidden) == tiny.LAYERS + 1


def test_reading_agrees_before_and_after_transformers_was_asked_for_hidden_states() -> None:
    hf = tiny.fresh()
    model = tiny.StandardizedTransformer(hf, check=False)
    expected = raw.value(tiny.plain(), tiny.as_inputs(tiny.IDS), "layer_output", 2)
    assert torch.equal(model.read(tiny.IDS, OUTPUTS[2])[OUTPUTS[2]], expected)
    hf(tiny.IDS, output_hidden_states=True)
    assert torch.equal(model.read(tiny.IDS, OUTPUTS[2])[OUTPUTS[2]], expected)


def test_an_empty_list_of_names_is_not_taken_for_all_of_them() -> None:
    assert tiny.shared().read(tiny.IDS, []) == {}
