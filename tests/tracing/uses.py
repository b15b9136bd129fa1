"""Nine kinds of use, and all that one could leave behind: what an interrupt is tried on."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PhiForCausalLM
from transformers.models.phi import modeling_phi

from cutaway import StandardizedTransformer
from tests import tiny


def a_trace(model: StandardizedTransformer) -> None:
    with model.trace(tiny.IDS):
        model.layers[0].layer_input[:, 1] += 1
        model.layers[1].self_attn.attention_scores[:] += 1
        model.layers[1].self_attn.attention_head_outputs
        model.layers[1].mlp.skip()
        model.next_token_probs


def nested_traces(model: StandardizedTransformer) -> None:
    with model.trace(tiny.IDS) as outer, torch.no_grad():
        model.layers[0].self_attn.attention_queries
        with model.trace(tiny.LEFT_PADDED):
            model.layers[1].self_attn.attention_probabilities
        model.layers[2].layer_output = model.layers[2].layer_output * 2
        assert outer.is_open


def a_generation(model: StandardizedTransformer) -> None:
    with model.generate(tiny.IDS, max_new_tokens=2, do_sample=False) as run:
        for _ in run:
            model.layers[1].self_attn.attention_keys
            model.layers[1].layer_output[:, -1] += 1


def a_reading(model: StandardizedTransformer) -> None:
    model.read(tiny.IDS, "layers.*.layer_output", "attention_probabilities", "layers.0.mlp.fc1.output", "logits")
    model.edited({"layers.1.mlp.mlp_output": lambda value: value + 1}).read(tiny.IDS, "logits")


def edits_around_plain_calls(model: StandardizedTransformer) -> None:
    with model.steer(1, torch.ones(tiny.HIDDEN)), model.hooks({"attention_scores": lambda scores: scores + 1}):
        tiny.logits_of(model.hf)
        with model.trace(tiny.IDS):
            model.layers[1].layer_output


def calls_inside_a_forward(model: StandardizedTransformer) -> None:
    attention = model.layers[1].self_attn
    with model.trace(tiny.IDS):
        attention.source.self_q_proj_0.output = attention.source.self_q_proj_0.output * 2
        attention.source.self_o_proj_0 if hasattr(attention, "no_such") else attention.attention_output
    with model.scan(tiny.IDS):
        model.layers[1].mlp.mlp_neurons
        model.logits


def gradients(model: StandardizedTransformer) -> None:
    with model.trace(tiny.IDS, grad=True):
        stream = model.layers[1].layer_output
        scores = model.layers[2].self_attn.attention_scores
        torch.autograd.grad(model.logits.sum(), [stream, scores])
    with torch.inference_mode(), model.trace(tiny.IDS):
        model.layers[1].mlp.mlp_output[:] = 0


def a_check(model: StandardizedTransformer) -> None:
    model.check()


def calls_of_an_edited_model(model: StandardizedTransformer) -> None:
    carrier = model.edited({"layers.1.mlp.mlp_output": lambda value: value + 1}).hf
    tiny.logits_of(carrier)
    carrier.generate(tiny.IDS, max_new_tokens=2, do_sample=False, pad_token_id=0)


USES: dict[str, Callable[[StandardizedTransformer], None]] = {
    use.__name__: use
    for use in (
        a_trace,
        nested_traces,
        a_generation,
        a_reading,
        edits_around_plain_calls,
        calls_inside_a_forward,
        gradients,
        a_check,
        calls_of_an_edited_model,
    )
}


def left_by(hf: PhiForCausalLM) -> dict[str, Any]:
    """All that a use could leave on a model, in transformers, in torch and in the context."""
    registry = modeling_phi.ALL_ATTENTION_FUNCTIONS
    state: dict[str, Any] = {
        "config": hf.config.to_dict(),
        "attention": hf.config._attn_implementation,
        "functions": dict(AttentionInterface._global_mapping),
        "masks": dict(AttentionMaskInterface._global_mapping),
        "registry": {name: value for name, value in vars(registry).items() if name != "_local_mapping"},
        "local": dict(registry._local_mapping),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "context": {
            variable.name: [one for one in value if (one() if callable(one) else one) is not None]
            if isinstance(value, tuple)
            else value
            for variable, value in contextvars.copy_context().items()
            if variable.name.startswith("cutaway") and value
        },
    }
    for name, module in hf.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, dict):
                state[f"{name}.{key}"] = {k: id(v) for k, v in value.items()}
            elif not isinstance(value, (int, float, str)):
                state[f"{name}.{key}"] = id(value)
    return state
