"""The gradient of each value is as if it were read alone, and that is what autograd gives for a raw hook at its place,
whatever else is read or edited in the trace."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from cutaway.passes.trace import Trace
from tests import tiny
from tests.families import models

KINDS = pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox", "neox-sequential"])


def both(kind: str, attention: str = "sdpa", dtype: torch.dtype = torch.float64) -> tuple[Any, StandardizedTransformer]:
    if kind == "phi":
        return tiny.plain("P-gqa", attention, dtype), tiny.shared("P-gqa", attention, dtype)
    return models.plain(kind, attention, dtype), models.wrapped(kind, attention, dtype)


def loss_of(logits: Tensor) -> Tensor:
    weights = torch.linspace(-1, 1, logits[:, -1].numel(), dtype=logits.dtype).view(logits[:, -1].shape)
    return (logits[:, -1] * weights).sum() + logits[:, 3, 7].square().sum() / 10


def places(model: StandardizedTransformer, layers: tuple[int, ...]) -> list[str]:
    """Paths of everything that can be read in these layers, in an order in which a pass reaches them: values, modules'
    inputs and outputs, and calls inside the block's forward and the attention's."""
    subject = model._subject
    order = subject.survey.order
    found: dict[str, tuple[float, int]] = {}
    for path in subject.value_paths:
        inside = path.layer is None or path.layer in layers
        if inside and not path.value.derived and path.name not in ("input_ids", "attention_mask"):
            found[str(path)] = (subject.rank(path), 0)
    own = subject.family.modules["model"]["layers"]
    for layer in layers:
        for name, _ in subject.modules[f"{own}.{layer}"].named_modules():
            path = ".".join(filter(None, (f"{own}.{layer}", name)))
            if (path, "enter") not in order:
                continue
            host = ".".join(filter(None, (f"layers.{layer}", name)))
            if (path, "stream") not in order:  # its moment is that of `layer_mid`
                found[f"{host}.input"] = (order[path, "enter"], 1)
            found[f"{host}.output"] = (order[path, "exit"], 1)
    return [path for path, _ in sorted(found.items(), key=lambda item: item[1])]


def ask(model: Any, path: str) -> Any:
    host = model
    for part in path.split("."):
        host = host[int(part)] if part.isdigit() else getattr(host, part)
    value = host
    while isinstance(value, tuple):
        value = value[0]
    return value


def gradients(model: StandardizedTransformer, paths: list[str], edit: Any = None, **options: Any) -> dict[str, Tensor]:
    """Of values read in one trace; `edit` is called with each path and value once it is read."""
    kept = {}
    with model.trace(tiny.IDS, grad=True, **options):
        for path in paths:
            kept[path] = ask(model, path)
            if edit is not None:
                edit(path, kept[path])
        loss_of(model.logits).backward()
    return {path: value.grad for path, value in kept.items()}


def is_there(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def readable(model: StandardizedTransformer, layers: tuple[int, ...]) -> list[str]:
    """Of `places`, those with a floating tensor that a trace comes by in this order."""
    found = []
    with model.trace(tiny.IDS, grad=True):
        for path in places(model, layers):
            if is_there(ask(model, path)):
                found.append(path)
    return found


@KINDS
def test_read_with_others_as_read_alone(kind: str) -> None:
    _, model = both(kind)
    paths = readable(model, (1,))
    assert len(paths) > 35
    alone = {path: gradients(model, [path])[path] for path in paths}
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in alone.values())
    chooser = random.Random(0)
    for few in [paths, paths[::2], *(sorted(chooser.sample(paths, 8), key=paths.index) for _ in range(12))]:
        for path, gradient in gradients(model, few).items():
            torch.testing.assert_close(gradient, alone[path], rtol=1e-4, atol=1e-5, msg=path)


@KINDS
def test_read_alone_as_a_raw_hook_has_it(kind: str) -> None:
    hf, model = both(kind)
    subject = model._subject
    for path in [path for path in readable(model, (1,)) if path.endswith((".input", ".output"))]:
        host, _, edge = path.rpartition(".")
        module = hf.get_submodule(host.replace("layers", subject.family.modules["model"]["layers"], 1))
        torch.testing.assert_close(gradients(model, [path])[path], by_hook(hf, module, edge), msg=path)


def by_hook(hf: Any, module: Any, edge: str) -> Tensor:
    kept: list[Tensor] = []

    def own(value: Any) -> Any:
        if isinstance(value, tuple):
            return (own(value[0]), *value[1:])
        if kept:
            return value  # of a module that is called twice, the first call
        kept.append(value.clone())
        kept[0].retain_grad()
        return kept[0]

    def enter(_module: Any, args: Any, kwargs: Any) -> Any:
        if args:
            return own(args), kwargs
        first = next(iter(kwargs))
        return args, {**kwargs, first: own(kwargs[first])}

    handle = (
        module.register_forward_pre_hook(enter, with_kwargs=True)
        if edge == "input"
        else module.register_forward_hook(lambda _module, _args, output: own(output))
    )
    loss_of(hf(tiny.IDS, attention_mask=torch.ones_like(tiny.IDS)).logits).backward()
    handle.remove()
    hf.zero_grad()
    assert kept[0].grad is not None
    return kept[0].grad


NATIVE = {
    "phi": {
        "layer_input": ("", "input"),
        "attention_norm_output": ("input_layernorm", "output"),
        "mlp_norm_output": ("input_layernorm", "output"),
        "attention_output": ("self_attn", "output"),
        "mlp_input": ("mlp", "input"),
        "layer_output": ("", "output"),
    },
    "llama": {
        "layer_input": ("", "input"),
        "attention_norm_output": ("input_layernorm", "output"),
        "mlp_norm_output": ("post_attention_layernorm", "output"),
        "mlp_input": ("mlp", "input"),
        "mlp_neurons": ("mlp.down_proj", "input"),
        "layer_output": ("", "output"),
    },
    "gpt2": {
        "attention_norm_output": ("ln_1", "output"),
        "mlp_norm_output": ("ln_2", "output"),
        "mlp_input": ("mlp", "input"),
        "mlp_neurons": ("mlp.c_proj", "input"),
        "layer_output": ("", "output"),
    },
    "neox": {
        "layer_input": ("", "input"),
        "attention_norm_output": ("input_layernorm", "output"),
        "mlp_norm_output": ("post_attention_layernorm", "output"),
        "mlp_input": ("mlp", "input"),
        "layer_output": ("", "output"),
    },
}
HOST = {"attention_output": "layers.1.self_attn.attention_output", "mlp_neurons": "layers.1.mlp.mlp_neurons"}


@pytest.mark.parametrize("kind", NATIVE)
def test_values_have_the_gradient_of_their_own_place_after_all_others_were_read(kind: str) -> None:
    hf, model = both(kind)
    wanted = {HOST.get(name, f"layers.1.{name}"): at for name, at in NATIVE[kind].items()}
    everything = gradients(model, readable(model, (1,)))
    block = hf.get_submodule(model._subject.family.modules["model"]["layers"])[1]
    for path, (name, edge) in wanted.items():
        expected = by_hook(hf, block.get_submodule(name), edge)
        torch.testing.assert_close(everything[path], expected, rtol=1e-5, atol=1e-6, msg=path)


def test_what_feeds_both_is_the_sum_of_what_each_takes() -> None:
    _, model = both("phi")
    found = gradients(model, ["layers.1.attention_norm_output", "layers.1.self_attn.input", "layers.1.mlp_input"])
    norm, attention, mlp = found.values()
    torch.testing.assert_close(norm, attention + mlp)
    assert (norm - mlp).abs().max() > 1e-3
    found = gradients(model, ["layers.1.self_attn.input", *(f"layers.1.self_attn.{n}_proj.input" for n in "qkv")])
    whole, *parts = found.values()
    torch.testing.assert_close(whole, sum(parts))


@KINDS
@pytest.mark.parametrize("way", ["in place", "assigned"])
def test_with_an_edit_of_each_the_others_are_as_read_alone_beside_it(kind: str, way: str) -> None:
    _, model = both(kind)
    paths = [path for path in readable(model, (1,)) if not path.endswith("scores")]
    chooser = random.Random(1)
    for edited in chooser.sample(paths, 10):

        def edit(path: str, value: Tensor, edited: str = edited) -> None:
            if path != edited:
                return
            if way == "in place":
                value *= 1.1
                value[:, 0] += 0.01
            else:
                assign(model, path, value)

        few = sorted({edited, *chooser.sample(paths, 6)}, key=paths.index)
        together = gradients(model, few, edit)
        for path in few:
            alone = gradients(model, sorted({edited, path}, key=paths.index), edit)
            torch.testing.assert_close(together[path], alone[path], rtol=1e-4, atol=1e-5, msg=f"{path} by {edited}")


def assign(model: Any, path: str, value: Tensor) -> None:
    new = value * 1.1
    host, _, name = path.rpartition(".")
    owner = model
    for part in filter(None, host.split(".")):
        owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
    whole = getattr(owner, name)
    setattr(owner, name, (new, *whole[1:]) if isinstance(whole, tuple) else new)


@pytest.mark.parametrize("order", [("attention_premix", "o_proj.input"), ("o_proj.input", "attention_premix")])
@pytest.mark.parametrize("edited", [None, 0, 1])
def test_two_shapes_of_one_tensor_both_have_its_gradient(order: tuple[str, str], edited: int | None) -> None:
    hf, model = both("phi")
    module = hf.model.layers[1].self_attn.dense
    handle = module.register_forward_pre_hook(lambda _m, args: (args[0] * 3,)) if edited is not None else None
    expected = by_hook(hf, module, "input")
    if handle is not None:
        handle.remove()
    with model.trace(tiny.IDS, grad=True):
        values = [ask(model, f"layers.1.self_attn.{name}") for name in order]
        if edited is not None:
            values[edited] *= 3
        loss_of(model.logits).backward()
    for value in values:
        torch.testing.assert_close(value.grad.reshape(expected.shape), expected)


def test_an_assigned_constant_has_the_gradient_of_its_place() -> None:
    hf, model = both("phi")
    constant = torch.randn(3, 6, tiny.HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    handle = hf.model.layers[1].mlp.register_forward_hook(lambda *_: constant.clone().requires_grad_())
    expected = by_hook(hf, hf.model.layers[1].mlp, "output")
    handle.remove()
    with model.trace(tiny.IDS, grad=True):
        model.layers[1].mlp.mlp_output = constant
        value = model.layers[1].mlp.mlp_output
        loss_of(model.logits).backward()
    torch.testing.assert_close(value.grad, expected)
    assert not constant.requires_grad


def test_calls_inside_a_forward_too() -> None:
    hf, model = both("phi")
    with model.trace(tiny.IDS, grad=True):
        attention = model.layers[1].self_attn.source
        given = attention.self_q_proj_0.input
        queries = attention.self_q_proj_0.output
        others = attention.self_k_proj_0.output
        model.layers[1].mlp_input
        loss_of(model.logits).backward()
    attention = hf.model.layers[1].self_attn
    torch.testing.assert_close(given.grad, by_hook(hf, attention.q_proj, "input"))
    torch.testing.assert_close(queries.grad, by_hook(hf, attention.q_proj, "output"))
    torch.testing.assert_close(others.grad, by_hook(hf, attention.k_proj, "output"))


@pytest.mark.parametrize("inputs", ["ids", "embeddings"])
def test_where_everything_is_frozen_too(inputs: str) -> None:
    hf = tiny.fresh(dtype=torch.float64)
    expected = {name: by_hook(hf, hf.model.layers[1].get_submodule(name), "input") for name in ("self_attn", "mlp")}
    hf.requires_grad_(False)
    model = StandardizedTransformer(hf, check=False)
    given = (
        {"inputs_embeds": hf.get_input_embeddings()(tiny.IDS)} if inputs == "embeddings" else tiny.as_inputs(tiny.IDS)
    )
    with Trace(model._subject, given, grad=True):
        model.layers[1].attention_norm_output
        values = {"self_attn": model.layers[1].self_attn.input, "mlp": model.layers[1].mlp_input}
        loss_of(model.logits).backward()
    for name, value in values.items():
        torch.testing.assert_close(value.grad, expected[name])


def test_under_autocast_too() -> None:
    hf, model = both("phi", dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        expected = by_hook(hf, hf.model.layers[1].mlp, "input")
        found = gradients(model, ["layers.1.attention_norm_output", "layers.1.mlp_input"])["layers.1.mlp_input"]
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    assert (found - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_logits_are_bit_equal_with_everything_read(attention: str) -> None:
    hf, model = both("phi", attention, torch.float32)
    paths = [path for path in readable(model, (1,)) if not path.endswith(("scores", "probabilities"))]
    with model.trace(tiny.IDS, grad=True):
        for path in paths:
            ask(model, path)
        assert torch.equal(model.logits, tiny.logits_of(hf))
