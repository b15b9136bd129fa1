"""The oracle: every value of the vocabulary, read and edited by raw torch hooks and an attention function written here.

Nothing of Cutaway is used. The attention function is registered with transformers under a name of its own, for a copy
of the model, and takes its steps in transformers' order, so that it agrees with eager attention bit for bit.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PhiForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

Edit = Callable[[Tensor], Tensor | None]

INTERIOR = (
    "attention_queries",
    "attention_keys",
    "attention_values",
    "attention_scores",
    "attention_probabilities",
    "attention_head_outputs",
)
MODEL_VALUES = ("input_ids", "attention_mask", "token_embeddings", "final_norm_output", "lm_head_output", "logits")


def path_of(name: str, layer: int) -> str:
    """A value's path, written out by hand from the specification."""
    if name in MODEL_VALUES:
        return name
    if name.startswith("attention_") and name != "attention_norm_output":
        return f"layers.{layer}.self_attn.{name}"
    if name.startswith("mlp_") and name not in ("mlp_norm_output", "mlp_input"):
        return f"layers.{layer}.mlp.{name}"
    return f"layers.{layer}.{name}"


WRITABLE = (
    "input_ids",
    "attention_mask",
    "token_embeddings",
    "layer_input",
    "attention_norm_output",
    "attention_queries",
    "attention_keys",
    "attention_values",
    "attention_scores",
    "attention_probabilities",
    "attention_head_outputs",
    "attention_premix",
    "attention_output",
    "mlp_norm_output",
    "mlp_input",
    "mlp_activation",
    "mlp_neurons",
    "mlp_output",
    "layer_output",
    "final_norm_output",
    "lm_head_output",
    "logits",
)
"""Every value that Phi has and that can be edited, in the order of a pass."""


@contextlib.contextmanager
def hooked(hf: PhiForCausalLM, name: str, layer: int, edit: Edit) -> Iterator[None]:
    """Applies `edit` to a value outside the attention function, by one raw hook."""
    block = hf.model.layers[layer]
    outputs: dict[str, nn.Module] = {
        "token_embeddings": hf.model.embed_tokens,
        "attention_norm_output": block.input_layernorm,
        "mlp_norm_output": block.input_layernorm,
        "mlp_activation": block.mlp.activation_fn,
        "mlp_output": block.mlp,
        "layer_output": block,
        "final_norm_output": hf.model.final_layernorm,
        "lm_head_output": hf.lm_head,
    }
    firsts: dict[str, nn.Module] = {"layer_input": block, "mlp_input": block.mlp, "mlp_neurons": block.mlp.fc2}

    def instead(value: Tensor) -> Tensor:
        new = edit(value)
        return value if new is None else new

    def edit_heads(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        heads = args[0].reshape(*args[0].shape[:-1], hf.config.num_attention_heads, -1)
        return (instead(heads).flatten(-2),)

    def edit_logits(_module: nn.Module, _args: Any, output: Any) -> Any:
        output.logits = instead(output.logits)
        return output

    def edit_keyword(_module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, name: instead(kwargs[name])}

    if name in outputs:
        handle = outputs[name].register_forward_hook(lambda _m, _args, output: instead(output))
    elif name in firsts:
        handle = firsts[name].register_forward_pre_hook(lambda _m, args: (instead(args[0]), *args[1:]))
    elif name == "attention_premix":
        handle = block.self_attn.dense.register_forward_pre_hook(edit_heads)
    elif name == "attention_output":
        handle = block.self_attn.register_forward_hook(lambda _m, _args, out: (instead(out[0]), *out[1:]))
    elif name == "logits":
        handle = hf.register_forward_hook(edit_logits)
    else:
        handle = hf.register_forward_pre_hook(edit_keyword, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def own_attention(hf: PhiForCausalLM, name: str, layer: int, edit: Edit, kernel: str) -> Iterator[PhiForCausalLM]:
    """A copy of the model in which a value inside one layer's attention is edited.

    Layers are run by `kernel`, and a layer whose scores or probabilities are wanted step by step.
    """
    twin = copy.deepcopy(hf)

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **kwargs: Any
    ) -> tuple[Tensor, Any]:
        def at(which: str, tensor: Tensor) -> Tensor:
            if which != name or module.layer_idx != layer:
                return tensor
            new = edit(tensor)
            return tensor if new is None else new

        query, key, value = at(INTERIOR[0], query), at(INTERIOR[1], key), at(INTERIOR[2], value)
        stepwise = kernel == "eager" or (module.layer_idx == layer and name in INTERIOR[3:5])
        if not stepwise:
            result, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
            return at(INTERIOR[5], result), None
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        scores = torch.matmul(query, key.transpose(2, 3)) * scaling + _additive(attention_mask, query)
        scores = at(INTERIOR[3], scores)
        pattern = at(INTERIOR[4], scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype))
        result = torch.matmul(pattern, value).transpose(1, 2).contiguous()
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            result = result * attention_mask.any(dim=-1).transpose(1, 2)[..., None]  # as the kernel does for padding
        return at(INTERIOR[5], result), pattern

    masks = AttentionMaskInterface._global_mapping
    AttentionInterface.register("oracle", attention)
    AttentionMaskInterface.register("oracle", masks[kernel])
    twin.config._attn_implementation_internal = "oracle"
    try:
        yield twin
    finally:
        del AttentionInterface._global_mapping["oracle"], masks["oracle"]


def _additive(mask: Tensor | None, query: Tensor) -> Tensor:
    lowest = torch.finfo(query.dtype).min
    if mask is None:
        length = query.shape[2]
        mask = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, lowest)
    return mask


def edited_logits(hf: PhiForCausalLM, inputs: dict[str, Tensor], name: str, layer: int, edit: Edit) -> Tensor:
    """The plain model's logits where one value is edited as the pass comes by it."""
    with torch.no_grad():
        if name in INTERIOR:
            with own_attention(hf, name, layer, edit, hf.config._attn_implementation) as twin:
                return twin(**inputs).logits
        with hooked(hf, name, layer, edit):
            return hf(**inputs).logits


def value(hf: PhiForCausalLM, inputs: dict[str, Tensor], name: str, layer: int) -> Tensor:
    """One value of the plain model."""
    seen: list[Tensor] = []
    edited_logits(hf, inputs, name, layer, lambda tensor: seen.append(tensor.clone()))
    assert len(seen) == 1
    return seen[0]
