"""Valid models that are odd: nothing of them is a broken promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from tests import tiny
from tests.families.models import build, gpt2, llama, neox

FAMILIES: dict[str, Callable[..., PretrainedConfig]] = {
    "phi": lambda **changes: tiny.config(**changes),
    "llama": llama,
    "gpt2": gpt2,
    "neox": neox,
}

OWN_NAMES = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
"""GPT-2's own config keys."""


def config(family: str, **changes: Any) -> PretrainedConfig:
    """A tiny config of a family, its changes in the names that most families use."""
    if family in ("gpt2", "neox"):
        changes.pop("num_key_value_heads", None)
    if family == "gpt2":
        changes = {OWN_NAMES.get(key, key): value for key, value in changes.items()}
    return FAMILIES[family](**changes)


def model(family: str, attention: str = "sdpa", dtype: torch.dtype = torch.float32, **changes: Any) -> PreTrainedModel:
    return build(config(family, **changes), attention, dtype)


def parts(hf: Any) -> tuple[Any, list[Any], list[Any], list[Any]]:
    """The blocks, and of each what makes queries and keys, the attention's projection, and the MLP's last."""
    kind = type(hf).__name__
    if kind.startswith("GPT2"):
        blocks = list(hf.transformer.h)
        return (
            blocks,
            [(b.attn.c_attn,) for b in blocks],
            [b.attn.c_proj for b in blocks],
            [b.mlp.c_proj for b in blocks],
        )
    if kind.startswith("GPTNeoX"):
        blocks = list(hf.gpt_neox.layers)
        return (
            blocks,
            [(b.attention.query_key_value,) for b in blocks],
            [b.attention.dense for b in blocks],
            [b.mlp.dense_4h_to_h for b in blocks],
        )
    blocks = list(hf.model.layers)
    output = "dense" if kind.startswith("Phi") else "o_proj"
    down = "fc2" if kind.startswith("Phi") else "down_proj"
    return (
        blocks,
        [(b.self_attn.q_proj, b.self_attn.k_proj) for b in blocks],
        [getattr(b.self_attn, output) for b in blocks],
        [getattr(b.mlp, down) for b in blocks],
    )


def _zero(module: Any) -> None:
    for parameter in module.parameters():
        parameter.zero_()


def saturated(hf: Any) -> None:
    for projections in parts(hf)[1]:
        for projection in projections:
            projection.weight *= 60


def head_outlier(hf: Any) -> None:
    if hf.lm_head.bias is None:
        hf.lm_head.bias = torch.nn.Parameter(torch.zeros(hf.lm_head.weight.shape[0], dtype=hf.dtype))
    hf.lm_head.bias[3] = 3e4


def zero_attention(hf: Any) -> None:
    for projection in parts(hf)[2]:
        _zero(projection)


def zero_one_attention(hf: Any) -> None:
    _zero(parts(hf)[2][1])


def zero_mlp(hf: Any) -> None:
    for projection in parts(hf)[3]:
        _zero(projection)


def zero_one_mlp(hf: Any) -> None:
    _zero(parts(hf)[3][2])


def large_embeddings(hf: Any) -> None:
    hf.get_input_embeddings().weight *= 1000


def equal_embeddings(hf: Any) -> None:
    weight = hf.get_input_embeddings().weight
    weight[:] = weight[0].clone()


def zero_head(hf: Any) -> None:
    _zero(hf.lm_head)


def all_zero(hf: Any) -> None:
    _zero(hf)


SPOILT: dict[str, Callable[[Any], None]] = {
    function.__name__: function
    for function in (
        saturated,
        head_outlier,
        zero_attention,
        zero_one_attention,
        zero_mlp,
        zero_one_mlp,
        large_embeddings,
        equal_embeddings,
        zero_head,
        all_zero,
    )
}
"""What is done to the weights."""

SIZES: dict[str, dict[str, Any]] = {
    "vocabulary of 1": {"vocab_size": 1, "pad_token_id": None},
    "1 position": {"max_position_embeddings": 1},
    "2 positions": {"max_position_embeddings": 2},
    "3 positions": {"max_position_embeddings": 3},
    "5 positions": {"max_position_embeddings": 5},
    "one layer": {"num_hidden_layers": 1},
    "one head": {"num_attention_heads": 1, "num_key_value_heads": 1},
    "one key head": {"num_key_value_heads": 1},
    "heads of 1": {"hidden_size": 4, "num_key_value_heads": 4},
    "heads of 2": {"hidden_size": 8, "num_key_value_heads": 4},
    "tied": {"tie_word_embeddings": True},
    "tiny": {"hidden_size": 4, "num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 1},
}
"""What is other in the config."""


def spoilt(family: str, how: str, attention: str = "sdpa", dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    hf = model(family, attention, dtype)
    with torch.no_grad():
        SPOILT[how](hf)
    return hf
