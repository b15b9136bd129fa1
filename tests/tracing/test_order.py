"""Values come in the order of the pass; what comes too late is refused, with both places named."""

from __future__ import annotations

import pytest
import torch

from cutaway.errors import LateEditError, NoTraceError, OrderError, ReadOnlyError
from tests import raw, tiny


@pytest.mark.parametrize("layer", range(tiny.LAYERS))
def test_every_value_can_be_asked_in_order_in_one_trace(layer: int) -> None:
    model, seen = tiny.shared("P-gqa", "eager"), []
    with model.trace(tiny.IDS):
        for name in raw.WRITABLE:
            host = model
            for part in raw.path_of(name, layer).split(".")[:-1]:
                host = host[int(part)] if part.isdigit() else getattr(host, part)
            seen.append((name, getattr(host, name).clone()))
    for name, value in seen:
        expected = raw.value(tiny.plain("P-gqa", "eager"), tiny.as_inputs(tiny.IDS), name, layer)
        assert torch.equal(value, expected)


def test_asking_for_a_value_that_has_passed_names_both_places() -> None:
    model = tiny.shared()
    with pytest.raises(OrderError) as caught, model.trace(tiny.IDS):
        model.layers[2].mlp.mlp_output
        model.layers[0].layer_output
    message = str(caught.value)
    assert "`layers.2.mlp.mlp_output` (model.layers.2.mlp, output)" in message
    assert "`layers.0.layer_output` (model.layers.0, output)" in message
    assert "ask for `layers.0.layer_output` first, then `layers.2.mlp.mlp_output`" in message


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("attention_output", "attention_scores"),
        ("attention_probabilities", "attention_queries"),
        ("attention_head_outputs", "attention_probabilities"),
        ("mlp_output", "attention_output"),
        ("layer_output", "mlp_neurons"),
        ("attention_queries", "attention_norm_output"),
        ("logits", "lm_head_output"),
        ("logits", "layer_input"),
    ],
)
def test_order_inside_a_block_is_known_before_anything_more_is_run(now: str, then: str) -> None:
    hf = tiny.fresh()
    model = tiny.StandardizedTransformer(hf, check=False)

    def host(name: str):
        at = model
        for part in raw.path_of(name, 1).split(".")[:-1]:
            at = at[int(part)] if part.isdigit() else getattr(at, part)
        return at

    ran: list[int] = []
    with model.trace(tiny.IDS):
        getattr(host(now), now)
        handle = hf.lm_head.register_forward_hook(lambda *_: ran.append(1))
        with pytest.raises(OrderError, match="comes before it"):
            getattr(host(then), then)
        handle.remove()
        assert not ran
        assert model.logits.shape == (3, 6, tiny.VOCAB)


def test_a_value_read_before_is_given_again() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        first = model.layers[0].layer_output
        assert model.layers[0].layer_output is first
        model.layers[0].self_attn
        model.logits
        assert model.layers[0].layer_output is first
        with pytest.raises(OrderError):
            model.layers[1].layer_output


def test_after_an_edit_re_reading_gives_the_new_value() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        old = model.layers[1].layer_output
        new = old + 1
        model.layers[1].layer_output = new
        assert model.layers[1].layer_output is new
        assert model.layers[1].output is new
        model.logits
        assert model.layers[1].layer_output is new
    assert not torch.equal(old, new)


def test_two_names_of_one_tensor_show_one_edit() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        model.layers[1].attention_norm_output = model.layers[1].attention_norm_output + 1
        assert model.layers[1].mlp_norm_output is model.layers[1].attention_norm_output
        assert torch.equal(model.layers[1].mlp_input, model.layers[1].mlp_norm_output)


def test_an_assignment_that_comes_too_late_is_refused_and_has_no_effect() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.trace(tiny.IDS):
        late = model.layers[0].layer_output
        model.layers[2].layer_output
        with pytest.raises(
            LateEditError, match=r"edit `layers\.0\.layer_output` first, then `layers\.2\.layer_output`"
        ):
            model.layers[0].layer_output = late + 1
        assert torch.equal(model.logits, tiny.logits_of(hf))
    with pytest.raises(LateEditError), model.trace(tiny.IDS):
        model.logits
        model.layers[1].mlp.mlp_output = torch.zeros(3, 6, 32)


def test_patching_a_later_layer_into_an_earlier_one_of_the_same_pass_is_refused() -> None:
    hf, model = tiny.plain(), tiny.shared()
    before = tiny.logits_of(hf)
    with pytest.raises(LateEditError), model.trace(tiny.IDS):
        model.layers[0].layer_output = model.layers[2].layer_output
    assert torch.equal(tiny.logits_of(hf), before)


def test_an_edit_in_place_that_comes_too_late_is_refused() -> None:
    model = tiny.shared()
    with pytest.raises(LateEditError, match=r"`layers\.0\.mlp\.mlp_output` was edited in place after the pass"):
        with model.trace(tiny.IDS):
            late = model.layers[0].mlp.mlp_output
            model.layers[1].layer_output
            late += 1
            model.logits
    with pytest.raises(LateEditError), model.trace(tiny.IDS):
        late = model.layers[0].mlp.mlp_output
        model.logits
        late += 1


def test_an_edit_in_place_through_an_earlier_name_is_in_time_while_the_tensor_waits() -> None:
    model = tiny.shared()
    inputs = tiny.as_inputs(tiny.IDS)
    expected = raw.edited_logits(tiny.plain(), inputs, "layer_input", 1, lambda value: value + 1)
    with model.trace(tiny.IDS):
        stream = model.layers[0].layer_output
        model.layers[1].layer_input
        stream += 1
        assert torch.equal(model.logits, expected)


def test_what_was_saved_before_an_edit_does_not_change() -> None:
    model = tiny.shared()
    before = raw.value(tiny.plain(), tiny.as_inputs(tiny.IDS), "mlp_output", 1)
    with model.trace(tiny.IDS):
        live = model.layers[1].mlp.mlp_output
        saved = live.save()
        live += 1
        logits = model.logits.save()
    assert torch.equal(saved, before)
    assert torch.equal(live, before + 1)
    assert torch.equal(
        logits, raw.edited_logits(tiny.plain(), tiny.as_inputs(tiny.IDS), "mlp_output", 1, lambda value: value + 1)
    )


def test_a_saved_value_may_be_edited_at_any_time() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.trace(tiny.IDS):
        saved = model.layers[0].layer_output.save()
        model.layers[2].layer_output
        saved += 1
        assert torch.equal(model.logits, tiny.logits_of(hf))


@pytest.mark.parametrize("name", ["next_token_probs", "input_size"])
def test_a_derived_value_is_read_only(name: str) -> None:
    model = tiny.shared()
    with pytest.raises(ReadOnlyError, match=f"`{name}` can be read and not edited"), model.trace(tiny.IDS):
        setattr(model, name, None)
    with pytest.raises(ReadOnlyError, match=f"`{name}` can be read and not edited"):
        model.hooks({name: lambda value: value})


def test_outside_a_trace_there_are_no_values() -> None:
    model = tiny.shared()
    with pytest.raises(NoTraceError, match=r"`layers\.0\.layer_output` exists only while the model runs.*model\.read"):
        model.layers[0].layer_output
    with pytest.raises(NoTraceError):
        model.layers[0].mlp.mlp_output = torch.zeros(1)
    with pytest.raises(NoTraceError):
        model.next_token_probs
    with model.trace(tiny.IDS):
        model.layers[0].layer_output
    with pytest.raises(NoTraceError):
        model.logits


def test_a_trace_object_can_be_entered_again() -> None:
    model = tiny.shared()
    trace = model.trace(tiny.IDS)
    with trace:
        first = model.layers[1].layer_output
    with trace:
        second = model.layers[1].layer_output
        logits = model.logits
    assert torch.equal(first, second)
    assert torch.equal(logits, tiny.logits_of(tiny.plain()))
