"""Gradient checkpointing, of both kinds, gives the gradients of the model without it; the oracle is raw hooks and no
checkpointing."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cutaway import StandardizedTransformer
from cutaway.errors import GradientError
from tests import tiny
from tests.families import models

REENTRANT = pytest.mark.parametrize("reentrant", [False, True], ids=["kept graph", "reentrant"])
KINDS = pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])


def trained(kind: str) -> Any:
    """A model in training mode; dropout is on where its config has it."""
    hf = tiny.fresh(dtype=torch.float64) if kind == "phi" else copy.deepcopy(models.plain(kind, dtype=torch.float64))
    return hf.train()


def wrapped(hf: Any) -> StandardizedTransformer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is in training mode
        return StandardizedTransformer(hf, check=False)


def switch_on(hf: Any, reentrant: bool) -> None:
    hf.activation_checkpointing_enable({"use_reentrant": reentrant})


def grown(value: Tensor) -> Tensor:
    return value * 1.25 + torch.linspace(-1, 1, value.shape[-1], dtype=value.dtype)


def in_place(value: Tensor) -> None:
    value *= 1.25
    value += torch.linspace(-1, 1, value.shape[-1], dtype=value.dtype)


def loss_of(logits: Tensor) -> Tensor:
    return logits[:, -1, 3].sum() - logits[:, -1, 9].square().sum()


def blocks_of(hf: Any) -> Any:
    return hf.get_submodule(wrapped(hf)._subject.family.modules["model"]["layers"])


def by_hand(hf: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Of a step whose middle MLP's output is edited: the gradients of that and of the block's output, and of the
    parameters."""
    kept: list[Tensor] = []

    def edit(_module: Any, _args: Any, output: Tensor) -> Tensor:
        kept.append(grown(output))
        return kept[0]

    def keep(_module: Any, _args: Any, output: Any) -> None:
        kept.append(output[0] if isinstance(output, tuple) else output)

    block = blocks_of(hf)[1]
    handles = [block.mlp.register_forward_hook(edit), block.register_forward_hook(keep)]
    torch.manual_seed(0)
    logits = hf(tiny.IDS, use_cache=False).logits
    for handle in handles:
        handle.remove()
    for value in kept:
        value.retain_grad()
    loss_of(logits).backward()
    return [value.grad for value in kept if value.grad is not None], parameters(hf)


def parameters(hf: Any) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in hf.named_parameters() if p.grad is not None}
    hf.zero_grad()
    return found


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-9, msg=name)


@KINDS
@REENTRANT
@pytest.mark.parametrize("way", ["in place", "assigned"])
def test_a_trace_reads_and_edits_inside_checkpointed_blocks(kind: str, reentrant: bool, way: str) -> None:
    hf = trained(kind)
    values, expected = by_hand(hf)
    model = wrapped(hf)
    switch_on(hf, reentrant)
    torch.manual_seed(0)
    with model.trace(tiny.IDS, grad=True, use_cache=False):
        output = model.layers[1].mlp.mlp_output
        if way == "in place":
            in_place(output)
        else:
            model.layers[1].mlp.mlp_output = grown(output)
            output = model.layers[1].mlp.mlp_output
        stream = model.layers[1].layer_output
        loss = loss_of(model.logits)
        alone = torch.autograd.grad(loss, [output, stream], retain_graph=True)
        output.grad = stream.grad = None  # torch adds to them in `autograd.grad` too
    loss.backward()  # the block is left, and the reentrant kind allows no `autograd.grad`
    for value, one, right in zip((output, stream), alone, values, strict=True):
        torch.testing.assert_close(value.grad, right, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(one, right, rtol=1e-9, atol=1e-9)
    assert_same(parameters(hf), expected)


@contextlib.contextmanager
def as_edited(model: StandardizedTransformer, function: Any) -> Iterator[None]:
    with model.hooks({"layers.1.mlp.mlp_output": function}):
        yield


@KINDS
@REENTRANT
@pytest.mark.parametrize("within", [True, False], ids=["back in the block", "back after the block"])
def test_a_training_step_under_hooks_goes_back_through_the_edited_model(
    kind: str, reentrant: bool, within: bool
) -> None:
    hf = trained(kind)
    expected = by_hand(hf)[1]
    model = wrapped(hf)
    switch_on(hf, reentrant)
    functions = [vars(module).get("_gradient_checkpointing_func") for module in hf.modules()]
    for function in (grown, in_place):
        torch.manual_seed(0)
        with as_edited(model, function):
            loss = loss_of(hf(tiny.IDS, use_cache=False).logits)
            if within:
                loss.backward()
        if not within:
            loss.backward()
        assert_same(parameters(hf), expected)
    assert [vars(module).get("_gradient_checkpointing_func") for module in hf.modules()] == functions


@REENTRANT
def test_a_steering_vector_is_trained_through_checkpointed_blocks(reentrant: bool) -> None:
    hf = trained("phi")
    model = wrapped(hf)
    vector = torch.zeros(tiny.HIDDEN, dtype=torch.float64, requires_grad=True)
    found = []
    for on in (False, True):
        if on:
            switch_on(hf, reentrant)
        with model.steer([0, 1], vector, 0.5):
            loss = loss_of(hf(tiny.IDS, use_cache=False).logits)
        loss.backward()
        found.append(vector.grad.clone())
        vector.grad = None
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    edited = model.edited({"layers.0.layer_output": lambda value: value + 0.5 * vector})
    with edited.trace(tiny.IDS, grad=True, use_cache=False):
        loss_of(edited.logits).backward()
    with model.steer(0, vector, 0.5):
        loss = loss_of(hf(tiny.IDS, use_cache=False).logits)
    of_edited, vector.grad = vector.grad, None
    loss.backward()
    torch.testing.assert_close(vector.grad, of_edited, rtol=1e-9, atol=1e-9)


@REENTRANT
def test_blocks_without_an_edit_stay_checkpointed(reentrant: bool) -> None:
    hf = trained("phi")
    model = wrapped(hf)
    switch_on(hf, reentrant)
    runs = dict.fromkeys(range(tiny.LAYERS), 0)

    def count(layer: int) -> Any:
        def hook(*_: Any) -> None:
            runs[layer] += 1

        return hook

    for layer, block in enumerate(hf.model.layers):
        block.self_attn.register_forward_hook(count(layer))  # torch stops early, in the MLP
    with as_edited(model, grown):
        loss_of(hf(tiny.IDS, use_cache=False).logits).backward()
    assert runs == {0: 2, 1: 1, 2: 2}


@REENTRANT
def test_an_edit_does_not_act_on_what_backward_computes_again_of_an_unedited_forward(reentrant: bool) -> None:
    hf = trained("phi")
    model = wrapped(hf)
    switch_on(hf, reentrant)
    loss = loss_of(hf(tiny.IDS, use_cache=False).logits)
    functions = {"layers.1.self_attn.attention_premix": grown}
    with pytest.raises(GradientError, match=r"layers\.1\.self_attn\.attention_premix.*outside"):
        with model.hooks(functions):
            loss.backward()


@REENTRANT
def test_a_checkpoint_of_the_callers_own_around_the_model_acts_in_the_block(reentrant: bool) -> None:
    hf = trained("phi")
    expected = by_hand(hf)[1]
    model = wrapped(hf)
    embeddings = hf.get_input_embeddings()(tiny.IDS)
    with as_edited(model, grown):
        logits = checkpoint(
            lambda given: hf(inputs_embeds=given, use_cache=False).logits, embeddings, use_reentrant=reentrant
        )
        loss_of(logits).backward()
    assert_same(parameters(hf), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_in_the_model_itself_is_refused(reentrant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hf = trained("phi")
    mlp = hf.model.layers[1].mlp
    own = mlp.forward
    monkeypatch.setattr(mlp, "forward", lambda x: checkpoint(own, x, use_reentrant=reentrant))
    model = wrapped(hf)
    with pytest.raises(GradientError, match="mlp_neurons"), model.trace(tiny.IDS, grad=True, use_cache=False):
        model.layers[1].mlp.mlp_neurons
    with model.trace(tiny.IDS, grad=True, use_cache=False):
        output = model.layers[1].mlp.mlp_output
        loss_of(model.logits).backward()
    assert output.grad.abs().sum() > 0


def test_a_trace_inside_a_checkpoint_of_the_callers_own_is_computed_again_whole() -> None:
    hf = trained("phi")
    model = wrapped(hf)
    vector = torch.zeros(tiny.HIDDEN, dtype=torch.float64, requires_grad=True)

    def traced(given: Tensor) -> Tensor:
        with model.trace(tiny.IDS, grad=True, use_cache=False):
            model.layers[1].mlp.mlp_output += given
            return loss_of(model.logits)

    found = []
    for call in (traced, lambda given: checkpoint(traced, given, use_reentrant=False)):
        call(vector).backward()
        found.append(vector.grad.clone())
        vector.grad = None
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    assert found[0].abs().sum() > 0


@REENTRANT
def test_another_threads_step_is_checkpointed_meanwhile(reentrant: bool) -> None:
    from concurrent.futures import ThreadPoolExecutor

    hf = trained("phi")
    model = wrapped(hf)
    loss_of(hf(tiny.IDS, use_cache=False).logits).backward()
    expected = parameters(hf)
    switch_on(hf, reentrant)
    runs: list[int] = []
    hf.model.layers[1].self_attn.register_forward_hook(lambda *_: runs.append(1))

    def step() -> None:
        loss_of(hf(tiny.IDS, use_cache=False).logits).backward()

    with ThreadPoolExecutor(1) as pool, model.trace(tiny.IDS, grad=True, use_cache=False):
        model.layers[1].layer_input
        pool.submit(step).result()
    assert_same(parameters(hf), expected)
    assert len(runs) == 2


@REENTRANT
@KINDS
def test_the_users_own_checkpoint_around_an_edited_call(kind: str, reentrant: bool) -> None:
    hf = (tiny.plain(dtype=torch.float64) if kind == "phi" else models.plain(kind, dtype=torch.float64)).eval()
    model = wrapped(hf)

    def begun() -> Tensor:
        return hf.get_input_embeddings()(tiny.IDS).detach().requires_grad_()

    for edit in (grown, torch.zeros_like):
        expected = begun()
        handle = blocks_of(hf)[1].mlp.register_forward_hook(lambda _m, _args, output, edit=edit: edit(output))
        loss_of(hf(inputs_embeds=expected).logits).backward()
        handle.remove()

        edits, stream = {"layers.1.mlp.mlp_output": edit}, begun()
        edited = model.edited(edits).hf
        loss_of(checkpoint(lambda x, m=edited: m(inputs_embeds=x).logits, stream, use_reentrant=reentrant)).backward()
        torch.testing.assert_close(stream.grad, expected.grad)

        stream = begun()
        with model.hooks(edits):
            logits = checkpoint(lambda x: hf(inputs_embeds=x).logits, stream, use_reentrant=reentrant)
            loss_of(logits).backward()
        torch.testing.assert_close(stream.grad, expected.grad)

        with pytest.raises(GradientError, match="the edit is not in force there"):
            with model.hooks(edits):
                logits = checkpoint(lambda x: hf(inputs_embeds=x).logits, begun(), use_reentrant=reentrant)
            loss_of(logits).backward()
