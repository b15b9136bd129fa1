"""The families' own modules, written out by hand from transformers' source, and what a raw hook sees there.

Nothing of Cutaway is used. What is inside attention is seen by an attention function of our own, which takes its steps
in transformers' order, so that it agrees with eager attention bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

Edit = Callable[[Tensor], Tensor | None]

INTERIOR = ("queries", "keys", "values", "scores", "probabilities", "head_outputs")
INTERIOR = tuple(f"attention_{name}" for name in INTERIOR)
STEPS = INTERIOR[3:5]
"""What exists only where attention is taken step by step."""


class Native(NamedTuple):
    """A family's own names, and the sum by which its block makes its output, in its own order."""

    embed: str
    layers: str
    norm: str
    attention: str
    norm_1: str
    """The norm before the attention; empty where there is none."""
    norm_2: str
    """The same of the MLP."""
    o_proj: str
    activation: str
    down: str
    sums: Callable[[Tensor, Tensor, Tensor], Tensor]
    sequential: bool = True
    gate: str = ""
    """What the activation is multiplied by, a module of the MLP or the last columns of one."""
    post_attention: str = ""
    """The norm between the attention and the stream, where there is one; it gives `attention_output`."""
    post_mlp: str = ""
    """The same of the MLP."""
    middle: Callable[[Tensor, Tensor], Tensor] = lambda x, attention: x + attention
    """The stream after the attention."""
    embedded: Callable[[Tensor], Tensor] = lambda rows: rows
    """What the embedding's module makes of the matrix's rows."""
    logits: Callable[[Tensor, Any], Tensor] = lambda product, config: product
    """What the model makes of the head's product, by its config."""
    lacks: frozenset[str] = frozenset()
    """Usual values that this family does not have, or that have tests of their own."""
    adds: frozenset[str] = frozenset()
    """Values that it has and others do not."""


_UNROTATED = frozenset({"queries_before_rotary", "keys_before_rotary"})
_NEOX = ("gpt_neox.embed_in", "gpt_neox.layers", "gpt_neox.final_layer_norm", "attention", "input_layernorm")
_NEOX += ("post_attention_layernorm", "dense", "act", "dense_4h_to_h")

_LLAMA = Native(
    *("model.embed_tokens", "model.layers", "model.norm", "self_attn", "input_layernorm"),
    *("post_attention_layernorm", "o_proj", "act_fn", "down_proj"),
    sums=lambda x, attention, mlp: (x + attention) + mlp,
    gate="up_proj",
    adds=_UNROTATED,
)


def _capped(product: Tensor, config: Any) -> Tensor:
    cap = config.final_logit_softcapping
    return product if cap is None else torch.tanh(product / cap) * cap


_GEMMA = _LLAMA._replace(
    norm_2="pre_feedforward_layernorm",
    post_attention="post_attention_layernorm",
    post_mlp="post_feedforward_layernorm",
    embedded=lambda rows: rows * rows.shape[-1] ** 0.5,
    logits=_capped,
)

_OLMO = _LLAMA._replace(
    norm_1="",
    norm_2="",
    post_attention="post_attention_layernorm",
    post_mlp="post_feedforward_layernorm",
    lacks=frozenset({"attention_norm_output", "mlp_norm_output"}),
)

_GRANITE = _LLAMA._replace(
    sums=lambda x, attention, mlp: (x + attention * 0.22) + mlp * 0.22,
    middle=lambda x, attention: x + attention * 0.22,
    logits=lambda product, config: product / config.logits_scaling,
)

_EXPERTS = _LLAMA._replace(
    activation="",
    down="",
    gate="",
    lacks=frozenset({"mlp_activation", "mlp_neurons"}),
    adds=_UNROTATED | {"router_logits", "expert_weights", "expert_indices", "routed_output"},
)

NATIVE: dict[str, Native] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "mistral", "stablelm", "smollm3"), _LLAMA),
    "granite-biases": _LLAMA,
    "olmo2-biases": _OLMO._replace(lacks=_OLMO.lacks | {"head_contributions"}),
    "granite": _GRANITE,
    "olmo2": _OLMO,
    "phi3": _LLAMA._replace(activation="activation_fn", gate="gate_up_proj", adds=frozenset()),
    **dict.fromkeys(("mixtral", "qwen3_moe"), _EXPERTS),
    **dict.fromkeys(("gemma2", "gemma3"), _GEMMA),
    **dict.fromkeys(("gemma2-uncapped", "gemma3-capped"), _GEMMA._replace(lacks=frozenset({"head_contributions"}))),
    "stablelm-parallel": _LLAMA._replace(norm_2="input_layernorm", sequential=False),
    "phi": Native(
        *("model.embed_tokens", "model.layers", "model.final_layernorm", "self_attn", "input_layernorm"),
        *("input_layernorm", "dense", "activation_fn", "fc2"),
        sums=lambda x, attention, mlp: attention + mlp + x,
        sequential=False,
    ),
    "gpt2": Native(
        *("transformer.wte", "transformer.h", "transformer.ln_f", "attn", "ln_1", "ln_2", "c_proj", "act", "c_proj"),
        sums=lambda x, attention, mlp: (attention + x) + mlp,
    ),
    "gptj": Native(
        *("transformer.wte", "transformer.h", "transformer.ln_f", "attn", "ln_1", "ln_1", "out_proj", "act", "fc_out"),
        sums=lambda x, attention, mlp: (attention + mlp) + x,
        sequential=False,
        adds=_UNROTATED,
    ),
    "neox": Native(*_NEOX, sums=lambda x, attention, mlp: mlp + attention + x, sequential=False),
    "neox-sequential": Native(*_NEOX, sums=lambda x, attention, mlp: mlp + (attention + x)),
}


def native(kind: str) -> Native:
    """The names of a kind of `tests.families.models.CONFIGS`."""
    return NATIVE[kind] if kind in NATIVE else NATIVE[kind.partition("-")[0]]


class Parts:
    """The modules of one layer and of the model around it."""

    def __init__(self, hf: PreTrainedModel, kind: str, layer: int) -> None:
        names = native(kind)
        self.embed = hf.get_submodule(names.embed)
        self.block = hf.get_submodule(f"{names.layers}.{layer}")
        self.norm = hf.get_submodule(names.norm)
        self.head = hf.get_submodule("lm_head")
        self.attention = self.block.get_submodule(names.attention)
        self.mlp = self.block.get_submodule("mlp")
        self.norm_1 = self.block.get_submodule(names.norm_1) if names.norm_1 else self.attention
        self.norm_2 = self.block.get_submodule(names.norm_2) if names.norm_2 else self.mlp
        self.after_attention = self.block.get_submodule(names.post_attention) if names.post_attention else None
        self.after_mlp = self.block.get_submodule(names.post_mlp) if names.post_mlp else None
        self.o_proj = self.attention.get_submodule(names.o_proj)
        self.activation = self.mlp.get_submodule(names.activation)
        self.down = self.mlp.get_submodule(names.down)


@contextlib.contextmanager
def hooked(hf: PreTrainedModel, kind: str, name: str, layer: int, edit: Edit) -> Iterator[None]:
    """Applies `edit` to a value outside the attention function, by one raw hook."""
    parts = Parts(hf, kind, layer)
    outputs = {
        "token_embeddings": parts.embed,
        "attention_norm_output": parts.norm_1,
        "attention_output": parts.after_attention or parts.attention,
        "mlp_norm_output": parts.norm_2,
        "mlp_activation": parts.activation,
        "mlp_output": parts.after_mlp or parts.mlp,
        "layer_output": parts.block,
        "final_norm_output": parts.norm,
        "lm_head_output": parts.head,
    }
    inputs = {
        "layer_input": parts.block,
        "mlp_input": parts.mlp,
        "mlp_neurons": parts.down,
        "attention_premix": parts.o_proj,
    }

    def instead(value: Tensor) -> Tensor:
        new = edit(value)
        return value if new is None else new

    def on_output(_module: nn.Module, _args: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (instead(output[0]), *output[1:])
        if not isinstance(output, Tensor):
            output.logits = instead(output.logits)
            return output
        return instead(output)

    def on_input(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if name == "attention_premix":
            heads = args[0].unflatten(-1, (hf.config.num_attention_heads, -1))
            return (instead(heads).flatten(-2),)
        return (instead(args[0]), *args[1:])

    def on_keyword(_module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, name: instead(kwargs[name])}

    def on_mid(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
        args[0].copy_(instead(args[0]))

    if name in outputs:
        handle = outputs[name].register_forward_hook(on_output)
    elif name in inputs:
        handle = inputs[name].register_forward_pre_hook(on_input)
    elif name == "layer_mid":
        handle = parts.norm_2.register_forward_pre_hook(on_mid)
    elif name == "logits":
        handle = hf.register_forward_hook(on_output)
    else:
        handle = hf.register_forward_pre_hook(on_keyword, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def inside_attention(hf: PreTrainedModel, name: str, layer: int, edit: Edit) -> Iterator[None]:
    """Applies `edit` to a value inside one layer's attention, which is run step by step where the value is a step."""
    kernel = hf.config._attn_implementation

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **kwargs: Any
    ) -> tuple[Tensor, None]:
        def at(which: str, tensor: Tensor) -> Tensor:
            new = edit(tensor) if (f"attention_{which}", module.layer_idx) == (name, layer) else None
            return tensor if new is None else new

        query, key, value = at("queries", query), at("keys", key), at("values", value)
        if kernel != "eager" and (name not in STEPS or module.layer_idx != layer):
            result, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **kwargs)
            return at("head_outputs", result), None
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = repeat_kv(key, groups), repeat_kv(value, groups)
        products = torch.matmul(query, key.transpose(2, 3)) * scaling
        if kwargs.get("softcap") is not None:
            products = torch.tanh(products / kwargs["softcap"]) * kwargs["softcap"]
        products = products + _additive(mask, query)
        if kwargs.get("s_aux") is not None:
            pattern = at("probabilities", _beside_sinks(products, kwargs["s_aux"], lambda keys: at("scores", keys)))
        else:
            scores = at("scores", products)
            pattern = at("probabilities", scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype))
        return at("head_outputs", torch.matmul(pattern, value).transpose(1, 2).contiguous()), None

    masks = AttentionMaskInterface._global_mapping
    AttentionInterface.register("by hand", attention)
    AttentionMaskInterface.register("by hand", masks[kernel])
    hf.config._attn_implementation_internal = "by hand"
    try:
        yield
    finally:
        hf.config._attn_implementation_internal = kernel
        del AttentionInterface._global_mapping["by hand"], masks["by hand"]


def _beside_sinks(products: Tensor, sinks: Tensor, at_keys: Callable[[Tensor], Tensor]) -> Tensor:
    """The pattern on keys where each head has a sink beside them, less the greatest of a row for the softmax's sake."""
    batch, _, queries, _ = products.shape
    both = torch.cat([products, sinks.reshape(1, -1, 1, 1).expand(batch, -1, queries, -1)], dim=-1)
    both = both - both.max(dim=-1, keepdim=True).values
    return torch.cat([at_keys(both[..., :-1]), both[..., -1:]], dim=-1).softmax(dim=-1)[..., :-1]


def _additive(mask: Tensor | None, query: Tensor) -> Tensor:
    if mask is None:
        mask = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool).tril()[None, None]
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)


def edited_logits(
    hf: PreTrainedModel, kind: str, inputs: dict[str, Tensor], name: str, layer: int, edit: Edit
) -> Tensor:
    """The plain model's logits where one value is edited as the pass comes by it."""
    within = inside_attention(hf, name, layer, edit) if name in INTERIOR else hooked(hf, kind, name, layer, edit)
    any_hf: Any = hf
    with torch.no_grad(), within:
        return any_hf(**inputs).logits


def value(hf: PreTrainedModel, kind: str, inputs: dict[str, Tensor], name: str, layer: int) -> Tensor:
    """One value of the plain model."""
    seen: list[Tensor] = []
    edited_logits(hf, kind, inputs, name, layer, lambda tensor: seen.append(tensor.clone()))
    assert len(seen) == 1
    return seen[0]


def path_of(name: str, layer: int) -> str:
    """A value's path, written out by hand from the specification."""
    if name in ("input_ids", "attention_mask", "token_embeddings", "final_norm_output", "lm_head_output", "logits"):
        return name
    if name.startswith("attention_") and name != "attention_norm_output":
        return f"layers.{layer}.self_attn.{name}"
    if name.startswith("mlp_") and name not in ("mlp_norm_output", "mlp_input"):
        return f"layers.{layer}.mlp.{name}"
    return f"layers.{layer}.{name}"
