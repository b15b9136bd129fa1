"""Every value by raw hooks and an attention function of one's own: the limit for the fourth workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PhiForCausalLM

from benchmarks.cases import Case, twin

Found = dict[tuple[str, int], Tensor]

_NAME = "benchmark_of_raw_hooks"
_open: list[Found] = []


def every_value(case: Case) -> Found:
    """All values of one pass, by name and layer; the layer of the model's own values is −1."""
    hf = case.__dict__.get("_raw_values_model")
    if hf is None:
        hf = case.__dict__["_raw_values_model"] = _with_own_attention(case.hf)
    found: Found = {}
    handles = _attach(hf, found)
    _open.append(found)
    try:
        with torch.no_grad():
            found["logits", -1] = hf(**case.inputs).logits
    finally:
        _open.pop()
        for handle in handles:
            handle.remove()
    return found


def _attach(hf: PhiForCausalLM, found: Found) -> list[Any]:
    def output(*keys: tuple[str, int]) -> Callable[..., None]:
        def keep(_module: Any, _args: Any, output: Any) -> None:
            value = output[0] if isinstance(output, tuple) else output
            for key in keys:
                found[key] = value

        return keep

    def argument(key: tuple[str, int]) -> Callable[..., None]:
        def keep(_module: Any, args: tuple[Any, ...]) -> None:
            found[key] = args[0]

        return keep

    model = hf.model
    handles: list[Any] = [
        model.embed_tokens.register_forward_hook(output(("token_embeddings", -1))),
        model.final_layernorm.register_forward_hook(output(("final_norm_output", -1))),
        hf.lm_head.register_forward_hook(output(("lm_head_output", -1))),
    ]
    for i, layer in enumerate(model.layers):
        mlp, attention = layer.mlp, layer.self_attn
        norms = output(("attention_norm_output", i), ("mlp_norm_output", i))
        handles += [
            layer.register_forward_pre_hook(argument(("layer_input", i))),
            layer.input_layernorm.register_forward_hook(norms),
            attention.dense.register_forward_pre_hook(argument(("attention_premix", i))),
            attention.register_forward_hook(output(("attention_output", i))),
            mlp.register_forward_pre_hook(argument(("mlp_input", i))),
            mlp.activation_fn.register_forward_hook(output(("mlp_activation", i))),
            mlp.fc2.register_forward_pre_hook(argument(("mlp_neurons", i))),
            mlp.register_forward_hook(output(("mlp_output", i))),
            layer.register_forward_hook(output(("layer_output", i))),
        ]
    return handles


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **_: Any
) -> tuple[Tensor, Tensor]:
    """Eager attention in transformers' order, for as many key heads as query heads."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    pattern = torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    heads = torch.matmul(pattern, value).transpose(1, 2).contiguous()
    names = ("queries", "keys", "values", "scores", "probabilities", "head_outputs")
    for name, tensor in zip(names, (query, key, value, scores, pattern, heads), strict=True):
        _open[-1][f"attention_{name}", module.layer_idx] = tensor
    return heads, pattern


def _with_own_attention(hf: PhiForCausalLM) -> PhiForCausalLM:
    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, AttentionMaskInterface._global_mapping["eager"])
    own = twin(hf)
    own.config._attn_implementation_internal = _NAME
    return own
