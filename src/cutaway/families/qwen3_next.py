"""Qwen3-Next: three layers of four mix tokens by a gated delta rule, the fourth by attention with a gate on its heads.

Each layer has routed experts and one more that every token goes through, whose output a gate of one number multiplies.
Norms multiply by one plus their weight. The rotary turns a quarter of a head's width. A layer that `mlp_only_layers`
names, or that `decoder_sparse_step` passes over, has one MLP. transformers: `models/qwen3_next/modeling_qwen3_next.py`.
"""

from cutaway.families.family import Family, Kind
from cutaway.families.mamba2 import CONVOLVED
from cutaway.families.qwen3 import QWEN3
from cutaway.families.usual import (
    EXPERT_MODULES,
    EXPERT_SETTINGS,
    EXPERT_SITES,
    NO_NEURONS,
    USUAL_SETTINGS,
    USUAL_SIZES,
)
from cutaway.sites import gate_beside, output_of

QWEN3_NEXT = Family(
    name="qwen3_next",
    architectures=("Qwen3NextForCausalLM",),
    checkpoints=(
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "Qwen/Qwen3-Next-80B-A3B-Thinking",
        "Qwen/Qwen3-Coder-Next",
    ),
    modules=QWEN3.modules,
    sizes={**USUAL_SIZES, "num_experts": "num_experts", "experts_per_token": "num_experts_per_tok"},
    values={**QWEN3.values, "attention_gate": gate_beside("q_proj")},
    unavailable={},
    stream=("layer_input", "attention_output", "mlp_output"),
    premix_differs="each head's output times the sigmoid of its gate",
    kinds=(
        Kind(
            name="a gated delta rule",
            has="linear_attn",
            modules={"layer": {"mixer": "linear_attn"}, "mixer": {"out_proj": "out_proj"}},
            values={"mixer_norm_output": output_of("input_layernorm"), "mixer_output": output_of()},
            unavailable={
                "conv_output": CONVOLVED,
                "ssm_output": "The norm behind the recurrence is called with a row for each head of each token: "
                "`layers.0.mixer.norm.input` is what the recurrence gives.",
            },
            lacks=("attention",),
            stream=("layer_input", "mixer_output", "mlp_output"),
            premix_differs="",
        ),
        Kind(
            name="experts",
            has="mlp.experts",
            modules={"mlp": {**EXPERT_MODULES, "shared_expert": "shared_expert"}},
            values={**EXPERT_SITES, "shared_expert_output": output_of("shared_expert", rows=True)},
            unavailable=NO_NEURONS,
        ),
    ),
    settings=USUAL_SETTINGS
    | EXPERT_SETTINGS
    | {
        "attention_bias",
        "decoder_sparse_step",
        "full_attention_interval",
        "layer_types",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "mlp_only_layers",
        "moe_intermediate_size",
        "norm_topk_prob",
        "partial_rotary_factor",
        "shared_expert_intermediate_size",
    },
)
