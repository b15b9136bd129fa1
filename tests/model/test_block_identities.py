"""What holds between the values of a block, bit for bit where the specification says so."""

from __future__ import annotations

import copy

import pytest
import torch

from tests import raw, tiny

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", tiny.KINDS)
def test_attention_and_mlp_and_stream_are_the_layers_output_bit_for_bit(
    kind: str, dtype: torch.dtype, attention: str
) -> None:
    found = tiny.shared(kind, attention, dtype).read(tiny.LEFT_PADDED, "*")
    for i in range(tiny.LAYERS):
        at = f"layers.{i}."
        summed = found[at + "self_attn.attention_output"] + found[at + "mlp.mlp_output"]
        assert torch.equal(summed + found[at + "layer_input"], found[at + "layer_output"])
        if i:
            assert torch.equal(found[at + "layer_input"], found[f"layers.{i - 1}.layer_output"])


def test_attention_output_reaches_no_mlp_of_its_own_block() -> None:
    model = tiny.shared()
    before = model.read(tiny.IDS, "mlp_input")
    with model.trace(tiny.IDS):
        model.layers[1].self_attn.attention_output[:] = 0
        same, changed = model.layers[1].mlp_input, model.layers[2].mlp_input
    assert torch.equal(same, before["layers.1.mlp_input"])
    assert not torch.equal(changed, before["layers.2.mlp_input"])


@pytest.mark.parametrize("kind", ["P", "P-gqa"])
@pytest.mark.parametrize("head", range(tiny.HEADS))
@pytest.mark.parametrize("name", ["attention_head_outputs", "attention_premix"])
def test_zeroing_a_head_is_zeroing_its_columns_of_dense(kind: str, head: int, name: str) -> None:
    hf, model = tiny.plain(kind), tiny.shared(kind)
    with model.trace(tiny.IDS):
        getattr(model.layers[1].self_attn, name)[:, :, head] = 0
        logits = model.logits
    ablated = copy.deepcopy(hf)
    with torch.no_grad():
        ablated.model.layers[1].self_attn.dense.weight[:, head * 8 : head * 8 + 8] = 0
    torch.testing.assert_close(logits, tiny.logits_of(ablated), atol=1e-5, rtol=1e-5)

    with model.trace(tiny.IDS):
        model.layers[1].self_attn.attention_output[..., head * 8 : head * 8 + 8] = 0
        sliced_after_dense = model.logits
    assert not torch.allclose(logits, sliced_after_dense, atol=1e-2)


@pytest.mark.parametrize("kind", ["P", "P-gqa"])
def test_the_heads_through_their_columns_of_dense_and_its_bias_once_sum_to_the_output(kind: str) -> None:
    dense = tiny.plain(kind).model.layers[0].self_attn.dense
    found = tiny.shared(kind).read(tiny.IDS, "layers.0.self_attn.*")
    columns = dense.weight.double().unflatten(1, (tiny.HEADS, 8))
    heads = found["layers.0.self_attn.attention_premix"].double()
    by_head = torch.einsum("bshd,ohd->bsho", heads, columns)
    expected = found["layers.0.self_attn.attention_output"].double()
    torch.testing.assert_close(by_head.sum(2) + dense.bias, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_lens_on_the_last_blocks_output_is_the_logits(dtype: torch.dtype) -> None:
    hf, model = tiny.plain("P", "sdpa", dtype), tiny.shared("P", "sdpa", dtype)
    found = model.read(tiny.LEFT_PADDED, "layer_output")
    last = model.project_on_vocab(found["layers.2.layer_output"])
    assert torch.equal(last, tiny.logits_of(hf, tiny.LEFT_PADDED))
    early = hf.lm_head(hf.model.final_layernorm(raw.value(hf, tiny.LEFT_PADDED, "layer_output", 0)))
    assert torch.equal(model.project_on_vocab(found["layers.0.layer_output"]), early)


def test_the_last_layers_output_is_before_the_final_norm() -> None:
    hf, model = tiny.plain(), tiny.shared()
    hidden = hf(tiny.IDS, output_hidden_states=True).hidden_states[-1]
    found = model.read(tiny.IDS, "layers.-1.layer_output", "final_norm_output")
    assert torch.equal(found["final_norm_output"], hidden)
    assert not torch.allclose(found["layers.2.layer_output"], hidden, atol=0.1)


def test_next_token_probs_are_at_each_rows_last_real_position() -> None:
    hf, model = tiny.plain(), tiny.shared()
    right = {
        "input_ids": torch.tensor([[5, 9, 33, 0, 0], [7, 7, 1, 40, 8], [50, 0, 0, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]),
    }
    for inputs, last in ((right, [2, 4, 0]), (tiny.LEFT_PADDED, [5, 5, 5]), (tiny.as_inputs(tiny.IDS), [5, 5, 5])):
        logits = tiny.logits_of(hf, inputs)
        expected = torch.stack([logits[row, at].double().softmax(-1) for row, at in enumerate(last)])
        probs = model.read(inputs, "next_token_probs")["next_token_probs"]
        torch.testing.assert_close(probs.double(), expected, atol=1e-6, rtol=1e-5)
