"""What an edit of a name means: a head is a head, a batch of patches is the patches one by one, a dtype is kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import NoTraceError
from tests import raw, tiny
from tests.families import models
from tests.generation.test_steps import both


@pytest.mark.parametrize("kind", ["P", "P-gqa"])
@pytest.mark.parametrize("name", ["attention_head_outputs", "attention_premix"])
@pytest.mark.parametrize("head", range(4))
def test_ablating_a_head_is_taking_its_columns_from_the_output_projection(kind: str, name: str, head: int) -> None:
    hf, model = tiny.plain(kind), tiny.shared(kind)
    without = copy.deepcopy(hf)
    with torch.no_grad():
        without.model.layers[1].self_attn.dense.weight[:, head * 8 : (head + 1) * 8] = 0
    with model.trace(tiny.IDS):
        getattr(model.layers[1].self_attn, name)[:, :, head] = 0
        logits = model.logits
    torch.testing.assert_close(logits, tiny.logits_of(without), rtol=1e-5, atol=1e-5)
    with model.trace(tiny.IDS):
        model.layers[1].self_attn.attention_output[..., head * 8 : (head + 1) * 8] = 0
        assert not torch.allclose(model.logits, logits, atol=1e-3)


@pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
def test_heads_through_their_own_slices_and_the_bias_once_add_up_to_the_attentions_output(kind: str) -> None:
    _, model = both(kind)
    values = model.read(tiny.IDS, "layers.1.self_attn.*")
    heads = values["layers.1.self_attn.attention_premix"]
    projection = model.layers[1].self_attn.o_proj.module
    weight = projection.weight.detach()
    weight = weight if kind == "gpt2" else weight.T  # Conv1D keeps the transpose
    total = sum(heads[:, :, head] @ weight[head * 8 : (head + 1) * 8] for head in range(4))
    if projection.bias is not None:
        total = total + projection.bias.detach()
    torch.testing.assert_close(total, values["layers.1.self_attn.attention_output"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["phi", "gpt2"])
def test_patches_in_one_batch_are_the_patches_one_by_one(kind: str) -> None:
    _, model = both(kind)
    clean, corrupt = tiny.IDS[:1], tiny.IDS[1:2]
    source = model.read(clean, "layer_output")
    cells = [(layer, position) for layer in range(3) for position in range(5)]
    one_by_one = []
    for layer, position in cells:
        with model.trace(corrupt):
            model.layers[layer].layer_output[:, position] = source[f"layers.{layer}.layer_output"][:, position]
            one_by_one.append(model.logits[0, -1])
    with model.trace(corrupt.expand(len(cells), -1)):
        for layer in range(3):
            stream = model.layers[layer].layer_output
            for row, (where, position) in enumerate(cells):
                if where == layer:
                    stream[row, position] = source[f"layers.{layer}.layer_output"][0, position]
        together = model.logits[:, -1]
    torch.testing.assert_close(together, torch.stack(one_by_one), rtol=1e-4, atol=1e-4)
    untouched = model.read(corrupt, "logits")["logits"][0, -1]
    assert ((together[:10] - untouched).abs().amax(dim=-1) > 1e-3).all()
    assert torch.allclose(together[10:], untouched, atol=1e-4)  # what leaves the last layer elsewhere is not read


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
def test_edits_with_float32_tensors_keep_the_models_dtype(kind: str, dtype: torch.dtype, attention: str) -> None:
    model = tiny.shared("P", attention, dtype) if kind == "phi" else models.wrapped(kind, attention, dtype)
    names = [name for name in raw.WRITABLE if name not in ("input_ids", "attention_mask")]
    plain = model.read(tiny.IDS, "logits")["logits"]
    for name in names:
        path = raw.path_of(name, 1)
        with model.trace(tiny.IDS):
            host: Any = model
            for part in path.split(".")[:-1]:
                host = host[int(part)] if part.isdigit() else getattr(host, part)
            value = getattr(host, name)
            before = value.dtype
            value += torch.linspace(-1, 1, value.shape[-1])
            assert value.dtype == before
            assert before == dtype or name in ("attention_scores", "attention_probabilities"), name
            logits = model.logits
        assert logits.dtype == dtype
        assert logits.isfinite().all()
        assert not torch.equal(logits, plain), name


def test_a_host_kept_from_a_finished_trace_says_that_there_is_none() -> None:
    model = tiny.shared()
    expected = tiny.logits_of(tiny.plain())
    with model.trace(tiny.IDS):
        layer = model.layers[2]
        stream = layer.layer_output
    for ask in (lambda: layer.layer_output, lambda: setattr(layer, "layer_output", stream), lambda: layer.skip()):
        with pytest.raises(NoTraceError, match=r"layers\.2"):
            ask()
    stream += 1
    assert torch.equal(tiny.logits_of(tiny.plain()), expected)


def test_a_value_of_one_trace_is_patched_into_another() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.trace(tiny.IDS):
        source = model.layers[1].layer_output

    def patched(_module: Any, _args: Any, stream: Tensor) -> Tensor:
        return torch.cat([stream[:, :4], source[:, 4:]], dim=1)

    other = tiny.IDS.flip(0)
    handle = hf.model.layers[1].register_forward_hook(patched)
    expected = tiny.logits_of(hf, other)
    handle.remove()
    with model.trace(other):
        model.layers[1].layer_output[:, 4:] = source[:, 4:]
        assert torch.equal(model.logits, expected)
