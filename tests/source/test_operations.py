"""`.source`: the calls inside a forward, by name and line, read and edited."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cutaway import StandardizedTransformer
from cutaway.errors import LateEditError, NoTraceError, OrderError, UnavailableValueError, UnknownValueError
from tests import raw, tiny
from tests.generation.test_steps import both

KINDS = pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])


def calls_by_hand(function: Any) -> list[tuple[str, int]]:
    """Every call of a function with its line, in the order of evaluation, from the inside out."""
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    body = ast.parse(textwrap.dedent("".join(lines))).body[0].body
    found: list[tuple[str, int]] = []
    counts: dict[str, int] = {}

    def walk(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            return
        for child in ast.iter_child_nodes(node):
            walk(child)
        if isinstance(node, ast.Call):
            parts, called = [], node.func
            while isinstance(called, ast.Attribute):
                parts.insert(0, called.attr)
                called = called.value
            if isinstance(called, ast.Name):
                parts.insert(0, called.id)
            name = "_".join(parts) or "call"
            if name != "super":
                found.append((f"{name}_{counts.get(name, 0)}", first + node.lineno - 1))
                counts[name] = counts.get(name, 0) + 1

    for statement in body:
        walk(statement)
    return found


@KINDS
def test_every_call_has_its_name_and_line(kind: str) -> None:
    _, model = both(kind)
    layer = model.layers[1]
    for host in (layer, layer.self_attn, layer.mlp, layer.input_layernorm, model.lm_head, model):
        function = type(host.module).forward
        operations = host.source.operations
        assert [(o.name, o.line) for o in operations] == calls_by_hand(function)
        file = Path(inspect.getsourcefile(inspect.unwrap(function))).read_text().splitlines()
        for operation in operations:
            assert operation.name.rpartition("_")[0].rpartition("_")[2] in "".join(file[operation.line - 1 :])
        assert [o.name for o in host.source] == [o.name for o in operations]


def test_it_prints_the_source_with_the_names_beside_it() -> None:
    attention = tiny.shared().layers[1].self_attn
    shown = str(attention.source).splitlines()
    assert shown[0].startswith("PhiAttention.forward")
    lines = {line.split()[0]: line for line in shown[1:] if line.split()}
    for operation in attention.source.operations:
        assert operation.name in lines[str(operation.line)]
    assert "self_q_proj_0" in dir(attention.source)
    assert "output" in dir(attention.source.self_q_proj_0)
    assert repr(attention.source.self_q_proj_0) == "<call layers.1.self_attn.source.self_q_proj_0>"


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", tiny.KINDS)
def test_queries_before_the_rotary_are_the_projections_output(kind: str, attention: str) -> None:
    hf, model = tiny.plain(kind, attention), tiny.shared(kind, attention)
    kept: list[torch.Tensor] = []
    handle = hf.model.layers[1].self_attn.q_proj.register_forward_hook(lambda _m, _a, out: kept.append(out))
    expected = tiny.logits_of(hf)
    handle.remove()
    with model.trace(tiny.IDS):
        source = model.layers[1].self_attn.source
        projected = source.self_q_proj_0.output
        before = source.transpose_0.output
        query = source.apply_rotary_pos_emb_0.input
        turned, _ = source.apply_rotary_pos_emb_0.output
        logits = model.logits
    assert torch.equal(projected, kept[0])
    assert torch.equal(before, kept[0].view(3, 6, 4, 8).transpose(1, 2))
    if kind != "P-qk-norm":
        assert torch.equal(query, before[..., :4])
    assert turned.shape == query.shape
    assert torch.equal(logits, expected)


@KINDS
@pytest.mark.parametrize("way", ["assigned", "in place"])
def test_an_edited_call_does_what_an_edit_by_a_raw_hook_does(kind: str, way: str) -> None:
    hf, model = both(kind)
    change = torch.randn(32, generator=torch.Generator().manual_seed(0))
    block = hf.get_submodule(model.layers[1]._module_path)
    handle = block.mlp.register_forward_hook(lambda _m, _a, out: out + change)
    with torch.no_grad():
        expected = hf(tiny.IDS, attention_mask=torch.ones_like(tiny.IDS)).logits
    handle.remove()
    with model.trace(tiny.IDS):
        call = model.layers[1].source.self_mlp_0
        if way == "assigned":
            call.output = call.output + change
        else:
            call.output[:] += change
        logits = model.logits
    torch.testing.assert_close(logits, expected, rtol=1e-6, atol=1e-6)


def test_the_arguments_of_a_call_are_read_and_edited() -> None:
    hf, model = tiny.plain(), tiny.shared()
    double = raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), "mlp_neurons", 1, lambda value: value * 2)
    with model.trace(tiny.IDS):
        call = model.layers[1].mlp.source.self_fc2_0
        call.input = call.input * 2
        assert torch.equal(model.logits, double)
    with model.trace(tiny.IDS):
        call = model.layers[1].mlp.source.self_fc2_0
        args, kwargs = call.inputs
        call.inputs = ((args[0] * 2,), kwargs)
        assert torch.equal(model.logits, double)
    with model.trace(tiny.IDS):
        _, kwargs = model.layers[1].self_attn.source.attention_interface_0.inputs
        assert kwargs["scaling"] == 8**-0.5


def test_nested_functions_can_be_entered() -> None:
    model = tiny.shared("P", "eager")
    with model.trace(tiny.IDS):
        inside = model.layers[1].self_attn.source.attention_interface_0.source
        scores = inside.nn_functional_softmax_0.input
        pattern = inside.nn_functional_softmax_0.output
        mixed = inside.torch_matmul_1.output
        logits = model.logits
    hf, inputs = tiny.plain("P", "eager"), tiny.as_inputs(tiny.IDS)
    assert torch.equal(scores, raw.value(hf, inputs, "attention_scores", 1))
    assert torch.equal(pattern, raw.value(hf, inputs, "attention_probabilities", 1))
    assert torch.equal(mixed.transpose(1, 2), raw.value(hf, inputs, "attention_head_outputs", 1))
    assert torch.equal(logits, tiny.logits_of(hf))


def test_a_call_inside_a_nested_function_can_be_edited() -> None:
    model = tiny.shared("P", "eager")
    halve = raw.edited_logits(
        tiny.plain("P", "eager"), tiny.as_inputs(tiny.IDS), "attention_probabilities", 1, lambda value: value / 2
    )
    with model.trace(tiny.IDS):
        inside = model.layers[1].self_attn.source.attention_interface_0.source
        inside.nn_functional_softmax_0.output /= 2
        assert torch.equal(model.logits, halve)


def test_the_root_forward_is_decorated_and_works_too() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with model.trace(tiny.IDS):
        head = model.source.self_lm_head_0.output
        logits = model.logits
    assert torch.equal(head, tiny.logits_of(hf))
    assert torch.equal(logits, head)


class Twice(nn.Module):
    """Two calls of one name, a chain, a closure, defaults, a loop and a call with stars."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return y.abs()

        parts = [x.relu(), x.neg().relu()]
        first = self.fc(inner(parts[0]))
        second = self.fc(torch.add(*parts))
        return first.add(second, alpha=scale) + sum(part.mean() for part in parts)


def test_forwards_of_the_users_own_are_rewritten_faithfully() -> None:
    hf = tiny.fresh()
    hf.model.layers[1].mlp = Twice()
    expected = tiny.logits_of(hf)
    model = StandardizedTransformer(hf, check=False)
    with model.trace(tiny.IDS):
        source = model.layers[1].mlp.source
        names = [operation.name for operation in source]
        relu, second = source.x_relu_0.output, source.self_fc_1.output
        added = source.first_add_0.output
        logits = model.logits
    assert names[:3] == ["x_relu_0", "x_neg_0", "relu_0"]
    assert "self_fc_0" in names
    assert (relu >= 0).all()
    torch.testing.assert_close(added - 2 * second, hf.model.layers[1].mlp.fc(relu))
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("entered", ["input", "layer_input", "nothing"])
def test_calls_are_reached_from_the_modules_own_input(entered: str) -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        if entered == "input":
            model.layers[1].self_attn.input
        elif entered == "layer_input":
            model.layers[1].layer_input
        first = model.layers[1].source.self_input_layernorm_0.output if entered == "layer_input" else None
        queries = model.layers[1].self_attn.source.self_q_proj_0.output
    hf = tiny.plain()
    stream = raw.value(hf, tiny.as_inputs(tiny.IDS), "attention_norm_output", 1)
    assert first is None or torch.equal(first, stream)
    with torch.no_grad():
        assert torch.equal(queries, hf.model.layers[1].self_attn.q_proj(stream))


def test_with_the_attention_interior_between() -> None:
    hf, model = tiny.plain("P", "eager"), tiny.shared("P", "eager")
    change = torch.linspace(-1, 1, 6)
    expected = raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), "attention_scores", 1, lambda value: value + change)
    with model.trace(tiny.IDS):
        attention = model.layers[1].self_attn
        projected = attention.source.self_q_proj_0.output
        queries = attention.attention_queries
        attention.attention_scores = attention.attention_scores + change
        pattern = attention.attention_probabilities
        dense = attention.source.self_dense_0.output
        assert torch.equal(dense, attention.attention_output)
        logits = model.logits
    assert torch.equal(logits, expected)
    assert torch.equal(queries[..., 4:], projected.view(3, 6, 4, 8).transpose(1, 2)[..., 4:])
    torch.testing.assert_close(pattern.sum(-1), torch.ones(3, 4, 6))


def test_a_calls_result_is_asked_for_while_the_pass_waits_inside_it() -> None:
    hf, model = tiny.plain(), tiny.shared()
    change = torch.linspace(-1, 1, 32)
    with model.trace(tiny.IDS):
        source = model.layers[1].source
        source.self_input_layernorm_0.output
        model.layers[1].self_attn.attention_queries
        attention, _ = source.self_self_attn_0.output
        neurons = model.layers[1].mlp.mlp_neurons
        source.self_mlp_0.output += change
        logits = model.logits
    inputs = tiny.as_inputs(tiny.IDS)
    assert torch.equal(attention, raw.value(hf, inputs, "attention_output", 1))
    assert torch.equal(neurons, raw.value(hf, inputs, "mlp_neurons", 1))
    assert torch.equal(logits, raw.edited_logits(hf, inputs, "mlp_output", 1, lambda value: value + change))


def test_with_skips_beside() -> None:
    hf, model = tiny.plain(), tiny.shared()
    handle = hf.model.layers[0].mlp.register_forward_hook(lambda _m, args, _o: args[0])
    expected = tiny.logits_of(hf)
    handle.remove()
    with model.trace(tiny.IDS):
        norm = model.layers[0].source.self_input_layernorm_0.output
        model.layers[0].mlp.skip()
        assert torch.equal(model.layers[0].source.self_mlp_0.output, norm)
        assert torch.equal(model.logits, expected)
    with pytest.raises(OrderError), model.trace(tiny.IDS):
        model.layers[0].mlp.skip()
        model.layers[0].mlp.source.self_fc1_0.output


ERRORS = [
    (lambda m: m.layers[1].self_attn.source.self_q_prj_0, UnknownValueError, "Did you mean 'self_q_proj_0'"),
    (lambda m: m.layers[1].self_attn.source.zzz, UnknownValueError, "There are: self_q_proj_0"),
    (lambda m: m.layers[1].self_attn.source.self_q_proj_0.result, UnknownValueError, "input, inputs, output"),
    (lambda m: m.layers[1].self_attn.source.self_q_proj_0.output, NoTraceError, "model.trace"),
    (lambda m: m.layers[1].self_attn.source.self_q_proj_0.source.operations, UnavailableValueError, "is a module"),
    (lambda m: m.layers[1].self_attn.source.torch_cat_0.source.operations, UnavailableValueError, "not a Python"),
    (lambda m: m.layers[1].self_attn.source.self_q_layernorm_0.source.operations, OrderError, "does not come by"),
]


@pytest.mark.parametrize(("ask", "error", "words"), ERRORS)
def test_what_cannot_be_had_says_why(ask: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        ask(tiny.shared())
    assert words in str(caught.value)


def test_calls_come_in_order() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        source = model.layers[1].self_attn.source
        source.self_dense_0.output
        with pytest.raises(OrderError, match="self_q_proj_0"):
            source.self_q_proj_0.output
        with pytest.raises(LateEditError, match="self_q_proj_0"):
            source.self_q_proj_0.output = torch.zeros(3, 6, 32)
        model.layers[2].layer_input
        with pytest.raises(OrderError, match="self_dense_0"):
            model.layers[1].self_attn.source.self_dense_0.input
    with model.trace(tiny.IDS):
        model.layers[1].self_attn.attention_queries
        with pytest.raises(OrderError, match="none of its calls was asked for before"):
            model.layers[1].self_attn.source.self_dense_0.output
        model.layers[1].self_attn.attention_output
