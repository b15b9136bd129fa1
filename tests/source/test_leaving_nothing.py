"""Nothing stays rewritten: after a pass, after an exception, in other threads, and for other passes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from transformers.models.phi import modeling_phi

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError
from tests import tiny


def forwards(hf: Any) -> dict[str, Any]:
    state = {name: module.__dict__.get("forward") for name, module in hf.named_modules()}
    state |= {cls.__name__: cls.forward for cls in (modeling_phi.PhiAttention, modeling_phi.PhiMLP, type(hf))}
    state["eager"] = modeling_phi.eager_attention_forward
    state["names"] = sorted(vars(modeling_phi))
    return state


def asked(model: StandardizedTransformer) -> None:
    model.layers[1].self_attn.source.self_q_proj_0.output
    model.layers[1].self_attn.source.attention_interface_0.source.attn_output_transpose_0.output
    model.layers[1].mlp.source.self_fc2_0.input


@pytest.mark.parametrize(
    "how", ["to the end", "left early", "an error of the body", "an error of ours", "in the model"]
)
def test_nothing_stays_rewritten(how: str) -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    expected, before = tiny.logits_of(hf), forwards(hf)
    errors = {"an error of the body": ZeroDivisionError, "an error of ours": CutawayError, "in the model": RuntimeError}
    with pytest.raises(errors[how]) if how in errors else torch.no_grad():
        with model.trace(tiny.IDS):
            asked(model)
            if how == "an error of the body":
                raise ZeroDivisionError
            if how == "an error of ours":
                model.layers[0].layer_output
            if how == "in the model":
                model.layers[1].mlp.source.self_fc2_0.inputs = ((torch.zeros(3, 6, 5),), {})
            if how != "left early":
                model.logits
    assert forwards(hf) == before
    assert torch.equal(tiny.logits_of(hf), expected)


def test_a_plain_call_and_a_nested_trace_inside_the_block_are_their_own() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected = tiny.logits_of(hf)
    with model.trace(tiny.IDS):
        outer = model.layers[1].mlp.source.self_fc1_0.output.clone()
        assert torch.equal(tiny.logits_of(hf), expected)
        with model.trace(tiny.IDS):
            model.layers[1].mlp.source.self_fc1_0.output += 1
            assert not torch.equal(model.logits, expected)
        assert torch.equal(model.layers[1].mlp.source.self_fc1_0.output, outer)
        assert torch.equal(model.logits, expected)


def test_threads_rewrite_the_same_forward_at_once() -> None:
    hf, model = tiny.plain(), tiny.shared()
    model.read(tiny.IDS, "logits")
    before, errors = forwards(hf), []
    expected = {}
    for number in range(3):
        handle = hf.model.layers[1].mlp.fc1.register_forward_hook(lambda _m, _a, out, n=number: out * (n + 1))
        expected[number] = tiny.logits_of(hf)
        handle.remove()
    start = threading.Barrier(4)

    def edit(number: int) -> None:
        try:
            start.wait()
            for _ in range(15):
                with model.trace(tiny.IDS):
                    call = model.layers[1].mlp.source.self_fc1_0
                    call.output = call.output * (number + 1)
                    assert torch.equal(model.logits, expected[number])
        except BaseException as error:
            errors.append(error)

    def plain() -> None:
        try:
            start.wait()
            for _ in range(30):
                assert torch.equal(tiny.logits_of(hf), expected[0])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(3)] + [threading.Thread(target=plain)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert forwards(hf) == before


def test_in_a_generation_each_step_is_watched_afresh() -> None:
    model = tiny.shared()
    with model.generate([5, 9, 33], max_new_tokens=4, do_sample=False) as run:
        shapes = [tuple(model.layers[1].self_attn.source.self_q_proj_0.output.shape) for _ in run]
    assert shapes == [(1, 3, 32), (1, 1, 32), (1, 1, 32), (1, 1, 32)]
    assert torch.equal(run.output, tiny.plain().generate(torch.tensor([[5, 9, 33]]), max_new_tokens=4, do_sample=False))


def test_gradients_flow_through_a_rewritten_forward() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS, grad=True):
        projected = model.layers[1].self_attn.source.self_q_proj_0.output
        model.logits[:, -1, 3].sum().backward()
    hf, kept = tiny.plain(), []
    handle = hf.model.layers[1].self_attn.q_proj.register_forward_hook(lambda _m, _a, out: kept.append(out))
    logits = hf(tiny.IDS, attention_mask=torch.ones_like(tiny.IDS)).logits
    handle.remove()
    expected = torch.autograd.grad(logits[:, -1, 3].sum(), kept[0])[0]
    torch.testing.assert_close(projected.grad, expected, rtol=1e-4, atol=1e-5)
    hf.zero_grad()
