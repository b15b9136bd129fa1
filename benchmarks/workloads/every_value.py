"""Every value of the vocabulary on every layer, under eager attention.

The raw way is an attention function of its own, registered with transformers, and a hook for each of the others.
nnsight reaches the attention's interior by rewriting the forwards that make it. TransformerLens' attention has points
of its own; what it serves at one point under two names is asked for once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW, Case
from benchmarks.workloads.raw_values import every_value
from benchmarks.workloads.workload import Workload

OF_A_LAYER = {
    "layer_input": "{}.layer_input",
    "attention_norm_output": "{}.attention_norm_output",
    "attention_queries": "{}.self_attn.attention_queries",
    "attention_keys": "{}.self_attn.attention_keys",
    "attention_values": "{}.self_attn.attention_values",
    "attention_scores": "{}.self_attn.attention_scores",
    "attention_probabilities": "{}.self_attn.attention_probabilities",
    "attention_head_outputs": "{}.self_attn.attention_head_outputs",
    "attention_premix": "{}.self_attn.attention_premix",
    "attention_output": "{}.self_attn.attention_output",
    "mlp_norm_output": "{}.mlp_norm_output",
    "mlp_input": "{}.mlp_input",
    "mlp_activation": "{}.mlp.mlp_activation",
    "mlp_neurons": "{}.mlp.mlp_neurons",
    "mlp_output": "{}.mlp.mlp_output",
    "layer_output": "{}.layer_output",
}
OF_THE_MODEL = ("token_embeddings", "final_norm_output", "lm_head_output", "logits")
LENS_POINTS = {
    "token_embeddings": "embed.hook_out",
    "final_norm_output": "ln_final.hook_out",
    "lm_head_output": "unembed.hook_out",
    "layer_input": "hook_in",
    "attention_norm_output": "ln1.hook_out",
    "attention_queries": "attn.hook_rot_q",
    "attention_keys": "attn.hook_rot_k",
    "attention_values": "attn.v.hook_out",
    "attention_scores": "attn.hook_attn_scores",
    "attention_probabilities": "attn.hook_pattern",
    "attention_head_outputs": "attn.o.hook_in",
    "attention_premix": "attn.o.hook_in",
    "attention_output": "hook_attn_out",
    "mlp_norm_output": "ln1.hook_out",
    "mlp_input": "mlp.hook_in",
    "mlp_activation": "mlp.out.hook_in",
    "mlp_neurons": "mlp.out.hook_in",
    "mlp_output": "hook_mlp_out",
    "layer_output": "hook_out",
}


def _keys(case: Case) -> list[tuple[str, int]]:
    return [(name, layer) for layer in range(case.num_layers) for name in OF_A_LAYER] + [
        (name, -1) for name in OF_THE_MODEL
    ]


def raw(case: Case) -> list[Tensor]:
    found = every_value(case)
    return [found[key] for key in _keys(case)]


def cutaway(case: Case) -> list[Tensor]:
    model = case.cutaway
    with model.trace(case.inputs):
        embedded = model.token_embeddings
        found = []
        for layer in model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            found += [
                layer.layer_input,
                layer.attention_norm_output,
                attention.attention_queries,
                attention.attention_keys,
                attention.attention_values,
                attention.attention_scores,
                attention.attention_probabilities,
                attention.attention_head_outputs,
                attention.attention_premix,
                attention.attention_output,
                layer.mlp_norm_output,
                layer.mlp_input,
                mlp.mlp_activation,
                mlp.mlp_neurons,
                mlp.mlp_output,
                layer.layer_output,
            ]
        return [*found, embedded, model.final_norm_output, model.lm_head_output, model.logits]


def cutaway_read(case: Case) -> list[Tensor]:
    found = case.cutaway.read(case.inputs, *OF_THE_MODEL, *OF_A_LAYER)
    layers = [f"layers.{layer}" for layer in range(case.num_layers)]
    of_layers = [found[path.format(layer)] for layer in layers for path in OF_A_LAYER.values()]
    return of_layers + [found[name] for name in OF_THE_MODEL]


def nnsight(case: Case) -> list[Tensor]:
    model = case.nnsight
    with torch.no_grad(), model.trace(**case.inputs):
        found = list().save()
        embedded = model.model.embed_tokens.output
        for layer in model.model.layers:
            found.append(layer.input)
            normed = layer.input_layernorm.output
            found.append(normed)
            call = layer.self_attn.source.attention_interface_1
            found.extend(call.inputs[0][1:4])
            found.append(call.source.nn_functional_softmax_0.input)
            found.append(call.source.nn_functional_dropout_0.output)
            found.append(call.output[0])
            found.append(layer.self_attn.dense.input)
            found.append(layer.self_attn.output[0])
            found.append(normed)
            found.append(layer.mlp.input)
            found.append(layer.mlp.activation_fn.output)
            found.append(layer.mlp.fc2.input)
            found.append(layer.mlp.output)
            found.append(layer.output)
        found.append(embedded)
        found.append(model.model.final_layernorm.output)
        found.append(model.lm_head.output)
        found.append(model.output.logits)
    return found


def _lens_point(name: str, layer: int) -> str:
    return LENS_POINTS[name] if layer < 0 else f"blocks.{layer}.{LENS_POINTS[name]}"


def lens(case: Case) -> list[Tensor]:
    keys = _keys(case)[:-1]
    names = list(dict.fromkeys(_lens_point(*key) for key in keys))
    with torch.no_grad():
        logits, cache = case.lens.run_with_cache(case.ids, names_filter=names)
    return [*(cache[_lens_point(*key)] for key in keys), logits]


def alike(way: str, result: list[Tensor]) -> list[Tensor]:
    """The values in the vocabulary's layouts."""
    names = [*OF_A_LAYER] * ((len(result) - len(OF_THE_MODEL)) // len(OF_A_LAYER)) + [*OF_THE_MODEL]
    return [_in_layout(way, name, value) for name, value in zip(names, result, strict=True)]


def _in_layout(way: str, name: str, value: Tensor) -> Tensor:
    if way == LENS and name in ("attention_queries", "attention_keys", "attention_values"):
        return value.transpose(1, 2)
    if name == "attention_premix":
        return value.flatten(2) if value.ndim == 4 else value
    return value


WAYS: dict[str, Any] = {RAW: raw, CUTAWAY: cutaway, f"{CUTAWAY}, read": cutaway_read, NNSIGHT: nnsight, LENS: lens}
WORKLOAD = Workload("4", "every value on every layer", WAYS, eager=True, alike=alike)
