"""Where each value is in families with experts and mixers, written out by hand from transformers' source.

Nothing of Cutaway is used: a value is seen and edited by one raw hook on the module that has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tests.families.native import INTERIOR, Edit, inside_attention


class Raw(NamedTuple):
    """A module below the layer, what of it, and how that is brought into the vocabulary's layout.

    Attributes:
        edge: its input, its output, or its input where the stream passes by.
        key: which of the tensors that it returns.
        rows: whether there is a row for each token.
        heads: into how many heads the last axis falls apart; 0 where it does not.
        swapped: whether heads are to stand before positions.
        behind: whether the second half of each head is meant.
    """

    module: str
    edge: str = "out"
    key: int = 0
    rows: bool = False
    heads: int = 0
    swapped: bool = False
    behind: bool = False

    def see(self, tensor: Tensor, batch: int) -> Tensor:
        tensor = tensor.unflatten(0, (batch, -1)) if self.rows else tensor
        tensor = tensor.unflatten(-1, (self.heads, -1)) if self.heads else tensor
        tensor = tensor.chunk(2, dim=-1)[1] if self.behind else tensor
        return tensor.transpose(1, 2) if self.swapped else tensor

    def put(self, tensor: Tensor, whole: Tensor) -> Tensor:
        if self.behind:
            tensor = torch.cat([whole.unflatten(-1, (self.heads, -1)).chunk(2, dim=-1)[0], tensor], dim=-1)
        tensor = tensor.transpose(1, 2) if self.swapped else tensor
        tensor = tensor.flatten(-2) if self.heads else tensor
        return tensor.flatten(0, 1) if self.rows else tensor


_AROUND = {"layer_input": Raw("", "in"), "layer_output": Raw("")}
_ATTENTION = {
    "attention_norm_output": Raw("input_layernorm"),
    "attention_premix": Raw("self_attn.o_proj", "in", heads=4),
    "attention_output": Raw("self_attn"),
}
_PROJECTED = {
    "queries_before_rotary": Raw("self_attn.q_proj", heads=4, swapped=True),
    "keys_before_rotary": Raw("self_attn.k_proj", heads=2, swapped=True),
}
_NORMED = {
    "queries_before_rotary": Raw("self_attn.q_norm", swapped=True),
    "keys_before_rotary": Raw("self_attn.k_norm", swapped=True),
}
_GATE = {"attention_gate": Raw("self_attn.q_proj", heads=4, behind=True)}
_BEFORE_MLP = {
    "layer_mid": Raw("post_attention_layernorm", "stream"),
    "mlp_norm_output": Raw("post_attention_layernorm"),
    "mlp_input": Raw("mlp", "in"),
    "mlp_output": Raw("mlp"),
}
_ONE_MLP = {"mlp_activation": Raw("mlp.act_fn"), "mlp_neurons": Raw("mlp.down_proj", "in")}
_MIXER = {"mixer_norm_output": Raw("input_layernorm"), "mixer_output": Raw("linear_attn")}


def _experts(router: str = "mlp.gate", **more: Raw) -> dict[str, Raw]:
    parts = dict(zip(("router_logits", "expert_weights", "expert_indices"), range(3), strict=True))
    return {
        **{name: Raw(router, key=key, rows=True) for name, key in parts.items()},
        "routed_output": Raw("mlp.experts", rows=True),
        **more,
    }


_LATENT = {**_ATTENTION, "latent_kv": Raw("self_attn.kv_a_layernorm")}
_QUERIES_OF_LATENT = {"queries_before_rotary": Raw("self_attn.q_b_proj", heads=4, swapped=True)}
_ALL_QUERIES = {"queries_before_rotary": _PROJECTED["queries_before_rotary"]}
_SHARED = _experts(shared_expert_output=Raw("mlp.shared_experts"))
_SHARED_ROWS = _experts(shared_expert_output=Raw("mlp.shared_expert", rows=True))

LAYERS: dict[str, dict[int, dict[str, Raw]]] = {
    "mixtral": {1: {**_ATTENTION, **_PROJECTED, **_BEFORE_MLP, **_experts()}},
    "qwen3_moe-mixed": {
        0: {**_ATTENTION, **_NORMED, **_BEFORE_MLP, **_experts()},
        1: {**_ATTENTION, **_NORMED, **_BEFORE_MLP, **_ONE_MLP},
    },
    "gpt_oss": {1: {**_ATTENTION, **_PROJECTED, **_BEFORE_MLP, **_experts("mlp.router")}},
    "deepseek_v3": {
        0: {**_LATENT, **_QUERIES_OF_LATENT, **_BEFORE_MLP, **_ONE_MLP},
        1: {**_LATENT, **_QUERIES_OF_LATENT, **_BEFORE_MLP, **_SHARED},
    },
    "deepseek_v3-no-query-latent": {1: {**_LATENT, **_ALL_QUERIES, **_BEFORE_MLP, **_SHARED}},
    "mamba2": {
        1: {
            "mixer_norm_output": Raw("norm"),
            "ssm_output": Raw("mixer.norm", "in"),
            "mixer_output": Raw("mixer"),
        }
    },
    "qwen3_next": {
        0: {**_MIXER, **_BEFORE_MLP, **_SHARED_ROWS},
        1: {**_ATTENTION, **_NORMED, **_GATE, **_BEFORE_MLP, **_SHARED_ROWS},
        2: {**_MIXER, **_BEFORE_MLP, **_ONE_MLP},
        3: {**_ATTENTION, **_NORMED, **_GATE, **_BEFORE_MLP, **_ONE_MLP},
    },
}
"""For each case a layer of each kind, and where the values of that layer are outside of the attention function."""

ATTENDS = {
    kind: [layer for layer, rows in kinds.items() if "attention_output" in rows] for kind, kinds in LAYERS.items()
}
"""The layers that have what is inside an attention too."""


def rows_of(kind: str, layer: int) -> dict[str, Raw]:
    return {**_AROUND, **LAYERS[kind][layer]}


@contextlib.contextmanager
def edited(hf: PreTrainedModel, kind: str, name: str, layer: int, edit: Edit) -> Iterator[None]:
    """Applies `edit` to one value of a layer as a pass of the plain model comes by it."""
    if name in INTERIOR:
        with inside_attention(hf, name, layer, edit):
            yield
        return
    raw, blocks = rows_of(kind, layer)[name], "backbone.layers" if kind == "mamba2" else "model.layers"
    handle = _hook(hf.get_submodule(f"{blocks}.{layer}").get_submodule(raw.module), raw, edit)
    try:
        yield
    finally:
        handle.remove()


def _hook(module: nn.Module, raw: Raw, edit: Edit) -> Any:
    def instead(tensor: Tensor) -> Tensor:
        new = edit(raw.see(tensor, 3))
        return tensor if new is None else raw.put(new, tensor)

    def leaving(_module: nn.Module, _args: Any, output: Any) -> Any:
        if not isinstance(output, tuple):
            return instead(output)
        return (*output[: raw.key], instead(output[raw.key]), *output[raw.key + 1 :])

    def entering(_module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return ((instead(args[0]), *args[1:]), kwargs)

    def passing(_module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        args[0].copy_(instead(args[0]))

    if raw.edge == "out":
        return module.register_forward_hook(leaving)
    return module.register_forward_pre_hook(entering if raw.edge == "in" else passing, with_kwargs=True)


def value(hf: PreTrainedModel, kind: str, run: Callable[[], Any], name: str, layer: int) -> Tensor:
    """One value of the plain model."""
    seen: list[Tensor] = []
    with torch.no_grad(), edited(hf, kind, name, layer, lambda tensor: seen.append(tensor.clone())):
        run()
    assert len(seen) == 1
    return seen[0]
