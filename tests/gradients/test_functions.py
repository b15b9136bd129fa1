"""Functions given to `hooks`, `edited` and `steer` in a training step of the plain model: gradients are those of the
same edits by raw hooks that return a new tensor."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from tests import raw, tiny

NAMES = [name for name in raw.WRITABLE if name not in ("input_ids", "attention_mask")]
LAYER = 1


def loss_of(logits: Tensor) -> Tensor:
    weights = torch.linspace(-1, 1, logits[:, -1].numel(), dtype=logits.dtype).view(logits[:, -1].shape)
    return (logits[:, -1] * weights).sum() + logits[:, 3, 7].square().sum() / 10


def grown(value: Tensor) -> Tensor:
    return value * 1.25 + torch.linspace(-1, 1, value.shape[-1], dtype=value.dtype)


def in_place(value: Tensor) -> None:
    value *= 1.25
    value += torch.linspace(-1, 1, value.shape[-1], dtype=value.dtype)


def parameter_gradients(hf: Any, around: Any, inputs: Any = tiny.IDS) -> dict[str, Tensor]:
    """Of one step; `around` gives the model to call, with the edit on it."""
    with around as called:
        loss_of(called(**tiny.as_inputs(inputs)).logits).backward()
        found = {name: parameter.grad.clone() for name, parameter in called.named_parameters()}
    hf.zero_grad()
    return found


def by_hand(hf: Any, name: str) -> dict[str, Tensor]:
    kernel = hf.config._attn_implementation
    edited = (
        raw.own_attention(hf, name, LAYER, grown, kernel)
        if name in raw.INTERIOR
        else raw.hooked(hf, name, LAYER, grown)
    )

    @contextlib.contextmanager
    def around() -> Any:
        with edited as twin:
            yield hf if twin is None else twin

    return parameter_gradients(hf, around())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_a_function_that_edits_in_place_trains_as_one_that_returns(name: str, attention: str) -> None:
    hf = tiny.fresh("P", attention, torch.float64)
    model = StandardizedTransformer(hf, check=False)
    expected = by_hand(hf, name)

    @contextlib.contextmanager
    def around(function: Any) -> Any:
        with model.hooks({raw.path_of(name, LAYER): function}):
            yield hf

    for function in (in_place, grown):
        for path, found in parameter_gradients(hf, around(function)).items():
            torch.testing.assert_close(found, expected[path], rtol=1e-5, atol=1e-6, msg=path)


def first(function: Any) -> Any:
    """For what is a tuple: the function of its first element."""

    def of_first(value: Any) -> Any:
        new = function(value[0])
        return None if new is None else (new, *value[1:])

    return of_first


NATIVE = {
    "layers.1.self_attn.q_proj.input": ("model.layers.1.self_attn.q_proj", "enter"),
    "layers.1.self_attn.v_proj.input": ("model.layers.1.self_attn.v_proj", "enter"),
    "layers.1.input_layernorm.input": ("model.layers.1.input_layernorm", "enter"),
    "layers.1.self_attn.output": ("model.layers.1.self_attn", "exit"),
    "layers.1.mlp.down_proj.output": ("model.layers.1.mlp.fc2", "exit"),
}


@pytest.mark.parametrize("path", NATIVE)
def test_at_a_modules_own_input_and_output_too(path: str) -> None:
    hf = tiny.fresh("P-gqa", "sdpa", torch.float64)
    model = StandardizedTransformer(hf, check=False)
    module, moment = NATIVE[path]

    @contextlib.contextmanager
    def by_a_hook() -> Any:
        def enter(_module: Any, args: tuple[Tensor]) -> tuple[Tensor]:
            return (grown(args[0]),)

        def leave(_module: Any, _args: Any, output: Any) -> Any:
            return (grown(output[0]), *output[1:]) if isinstance(output, tuple) else grown(output)

        owner = hf.get_submodule(module)
        handle = owner.register_forward_pre_hook(enter) if moment == "enter" else owner.register_forward_hook(leave)
        yield hf
        handle.remove()

    @contextlib.contextmanager
    def around(function: Any) -> Any:
        with model.hooks({path: function}):
            yield hf

    expected = parameter_gradients(hf, by_a_hook())
    logits = []
    for function in (in_place, grown):
        function = first(function) if path.endswith("self_attn.output") else function
        for name, found in parameter_gradients(hf, around(function)).items():
            torch.testing.assert_close(found, expected[name], rtol=1e-5, atol=1e-6, msg=name)
        with torch.no_grad(), around(function):
            logits.append(tiny.logits_of(hf))
    assert torch.equal(*logits)
