"""Ordinary autograd inside the block, against the plain model's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from tests import tiny
from tests.generation.test_steps import both


def by_hand(hf: Any, inputs: Tensor, wanted: tuple[int, ...], loss: Any, blocks: Any = None) -> tuple[Tensor, ...]:
    """`torch.autograd.grad` of a loss with respect to the outputs of blocks that raw hooks kept."""
    kept: dict[int, Tensor] = {}
    blocks = hf.model.layers if blocks is None else blocks

    def keep(layer: int) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            kept[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    handles = [blocks[layer].register_forward_hook(keep(layer)) for layer in wanted]
    logits = hf(inputs, attention_mask=torch.ones_like(inputs)).logits
    for handle in handles:
        handle.remove()
    return torch.autograd.grad(loss(logits), [kept[layer] for layer in wanted])


def last(logits: Tensor) -> Tensor:
    return logits[:, -1, 3].sum() - logits[:, -1, 9].square().sum()


@pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1)], ids=str)
def test_gradients_may_be_asked_for_in_any_order(kind: str, order: tuple[int, ...]) -> None:
    hf, model = both(kind)
    blocks = hf.get_submodule(model._subject.family.modules["model"]["layers"])
    expected = by_hand(hf, tiny.IDS, order, last, blocks)
    with model.trace(tiny.IDS, grad=True):
        streams = [layer.layer_output for layer in model.layers]
        last(model.logits).backward()
        inside = [streams[layer].grad.clone() for layer in order]
    after = [streams[layer].grad for layer in order]
    for one, other, right in zip(inside, after, expected, strict=True):
        torch.testing.assert_close(one, right, rtol=1e-4, atol=1e-5)
        assert torch.equal(one, other)
    hf.zero_grad()


def test_torch_autograd_grad_works_inside_and_after_the_block() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected = by_hand(hf, tiny.IDS, (0, 2), last)
    with model.trace(tiny.IDS, grad=True):
        streams = [model.layers[0].layer_output, model.layers[2].layer_output]
        loss = last(model.logits)
        inside = torch.autograd.grad(loss, streams, retain_graph=True)
    after = torch.autograd.grad(loss, streams)
    for found in (inside, after):
        for one, right in zip(found, expected, strict=True):
            torch.testing.assert_close(one, right, rtol=1e-4, atol=1e-5)
    assert all(parameter.grad is None for parameter in hf.parameters())


@pytest.mark.parametrize("frozen", ["none", "all", "embeddings"])
def test_frozen_parameters_do_not_matter_and_keep_their_flags(frozen: str) -> None:
    hf = tiny.fresh()
    expected = by_hand(hf, tiny.IDS, (0, 1), last)
    for name, parameter in hf.named_parameters():
        parameter.requires_grad_(not (frozen == "all" or (frozen == "embeddings" and "embed" in name)))
    flags = {name: parameter.requires_grad for name, parameter in hf.named_parameters()}
    model = StandardizedTransformer(hf, check=False)
    with model.trace(tiny.IDS, grad=True):
        embeddings = model.token_embeddings
        streams = model.layers[0].layer_output, model.layers[1].layer_output
        last(model.logits).backward()
    for stream, right in zip(streams, expected, strict=True):
        torch.testing.assert_close(stream.grad, right, rtol=1e-4, atol=1e-5)
    assert embeddings.grad.abs().sum() > 0
    assert {name: parameter.requires_grad for name, parameter in hf.named_parameters()} == flags
    for name, parameter in hf.named_parameters():
        assert (parameter.grad is not None) == flags[name]


def test_each_rows_gradient_is_that_of_the_row_alone() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS, grad=True):
        stream, heads = model.layers[1].layer_input, model.layers[1].self_attn.attention_premix
        logits = model.logits
        per_row = [
            torch.autograd.grad(logits[row, -1, 3], [stream, heads], retain_graph=True) for row in range(len(tiny.IDS))
        ]
    for row, (of_stream, of_heads) in enumerate(per_row):
        with model.trace(tiny.IDS[row : row + 1], grad=True):
            stream, heads = model.layers[1].layer_input, model.layers[1].self_attn.attention_premix
            alone = torch.autograd.grad(model.logits[0, -1, 3], [stream, heads])
        torch.testing.assert_close(of_stream[row], alone[0][0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(of_heads[row], alone[1][0], rtol=1e-4, atol=1e-5)
        others = [other for other in range(len(tiny.IDS)) if other != row]
        assert (of_stream[others] == 0).all()


def test_each_heads_gradient_is_that_of_its_slice_of_the_output_projection() -> None:
    hf, model = tiny.plain(), tiny.shared()
    weight = hf.model.layers[1].self_attn.dense.weight.detach()
    with model.trace(tiny.IDS, grad=True):
        heads = model.layers[1].self_attn.attention_head_outputs
        output = model.layers[1].self_attn.attention_output
        last(model.logits).backward()
    for head in range(tiny.HEADS):
        columns = weight[:, head * 8 : (head + 1) * 8]
        torch.testing.assert_close(heads.grad[:, :, head], output.grad @ columns, rtol=1e-4, atol=1e-5)


def test_a_slice_taken_before_the_pass_goes_on_is_in_the_graph() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS, grad=True):
        stream = model.layers[1].layer_output
        row = stream[1] * 1
        row.retain_grad()
        (last(model.logits) + row.sum()).backward()
    torch.testing.assert_close(row.grad, torch.ones_like(row))
    assert (stream.grad[1] - stream.grad[1].mean()).abs().max() > 0


def test_a_clean_and_a_corrupt_prompt_in_one_batch_attribute_as_two_runs_do() -> None:
    model = tiny.shared()
    clean, corrupt = tiny.IDS[:1], tiny.IDS[1:2]

    def attributed(streams: list[Tensor], clean_row: Tensor, corrupt_row: Tensor) -> list[Tensor]:
        return [(clean_row[i] - corrupt_row[i]) * streams[i] for i in range(len(streams))]

    with model.trace(torch.cat([clean, corrupt]), grad=True):
        streams = [host.self_attn.attention_premix for host in model.layers]
        model.logits[1, -1, 3].backward()
    together = attributed([s.grad[1] for s in streams], [s[0] for s in streams], [s[1] for s in streams])
    plain_clean = [v[0] for v in model.read(clean, "attention_premix").values()]
    plain_corrupt = [v[0] for v in model.read(corrupt, "attention_premix").values()]
    with model.trace(corrupt, grad=True):
        alone = [host.self_attn.attention_premix for host in model.layers]
        model.logits[0, -1, 3].backward()
    apart = attributed([s.grad[0] for s in alone], plain_clean, plain_corrupt)
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert one.abs().max() > 1e-3


@pytest.mark.parametrize("way", ["in place", "a slice in place", "assigned"])
def test_gradients_after_an_edit_are_those_of_the_edited_model(way: str) -> None:
    hf, model = tiny.plain(), tiny.shared()
    scale = torch.linspace(0.5, 2, 32)

    def by_a_hook(_module: Any, _args: Any, output: Tensor) -> Tensor:
        new = output * scale
        return torch.cat([new[:, :2], output[:, 2:]], dim=1) if way == "a slice in place" else new

    handle = hf.model.layers[1].mlp.register_forward_hook(by_a_hook)
    expected = by_hand(hf, tiny.IDS, (0, 2), last)
    handle.remove()
    with model.trace(tiny.IDS, grad=True):
        first = model.layers[0].layer_output
        output = model.layers[1].mlp.mlp_output
        if way == "in place":
            output *= scale
        elif way == "assigned":
            model.layers[1].mlp.mlp_output = output * scale
        else:
            output[:, :2] *= scale
        third = model.layers[2].layer_output
        last(model.logits).backward()
    torch.testing.assert_close(first.grad, expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(third.grad, expected[1], rtol=1e-4, atol=1e-5)


def test_a_users_own_parameter_is_trained_through_the_model() -> None:
    hf, model = tiny.plain(), tiny.shared()
    vector = torch.zeros(32, requires_grad=True)
    with model.trace(tiny.IDS, grad=True):
        model.layers[1].layer_output = model.layers[1].layer_output + vector
        last(model.logits).backward()
    found = vector.grad
    expected = by_hand(hf, tiny.IDS, (1,), last)[0].sum(dim=(0, 1))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_logits_with_gradients_are_the_plain_models_bit_for_bit() -> None:
    for attention in ("sdpa", "eager"):
        hf, model = tiny.plain("P", attention), tiny.shared("P", attention)
        with model.trace(tiny.IDS, grad=True):
            for layer in model.layers:
                layer.self_attn.attention_queries
                layer.layer_output
            assert torch.equal(model.logits, tiny.logits_of(hf))
