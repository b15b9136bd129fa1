"""Qwen3's mixture of experts: Qwen3's block, with 128 small MLPs of which a router gives each token eight.

A layer that `mlp_only_layers` names, or that `decoder_sparse_step` passes over, has Qwen3's own MLP; no published
checkpoint has one. The router takes a softmax over all experts; whether the weights of the chosen ones are made to sum
to one is `norm_topk_prob`'s to say. transformers: `models/qwen3_moe/modeling_qwen3_moe.py`.
"""

from cutaway.families.family import Family, Kind
from cutaway.families.qwen3 import QWEN3
from cutaway.families.usual import (
    EXPERT_MODULES,
    EXPERT_SETTINGS,
    EXPERT_SITES,
    NO_NEURONS,
    USUAL_SETTINGS,
    USUAL_SIZES,
)

QWEN3_MOE = Family(
    name="qwen3_moe",
    architectures=("Qwen3MoeForCausalLM",),
    checkpoints=(
        "Qwen/Qwen3-30B-A3B",
        "Qwen/Qwen3-30B-A3B-Base",
        "Qwen/Qwen3-30B-A3B-Instruct-2507",
        "Qwen/Qwen3-30B-A3B-Thinking-2507",
        "Qwen/Qwen3-235B-A22B",
        "Qwen/Qwen3-235B-A22B-Instruct-2507",
        "Qwen/Qwen3-235B-A22B-Thinking-2507",
        "Qwen/Qwen3-Coder-30B-A3B-Instruct",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
    ),
    modules=QWEN3.modules,
    sizes={**USUAL_SIZES, "num_experts": "num_experts", "experts_per_token": "num_experts_per_tok"},
    values=QWEN3.values,
    unavailable={},
    stream=("layer_input", "attention_output", "mlp_output"),
    kinds=(
        Kind(
            name="experts",
            has="mlp.experts",
            modules={"mlp": EXPERT_MODULES},
            values=EXPERT_SITES,
            unavailable=NO_NEURONS,
        ),
    ),
    settings=USUAL_SETTINGS
    | EXPERT_SETTINGS
    | {
        "attention_bias",
        "decoder_sparse_step",
        "max_window_layers",
        "mlp_only_layers",
        "moe_intermediate_size",
        "norm_topk_prob",
        "sliding_window",
        "use_sliding_window",
    },
)
