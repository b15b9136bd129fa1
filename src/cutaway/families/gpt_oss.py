"""gpt-oss: experts with biases and a clamped activation, windows on every other layer, and a sink to each head.

A head's softmax has one column more than there are keys, a number that it has learned: what goes there is attention to
nothing, and a query's weights on the keys sum to less than one. `attention_scores` and `attention_probabilities` are of
the keys alone, and `attention_sinks` is the share of the column. The router's weights are a softmax over the chosen
logits alone. transformers has no sdpa for this family, and turns the packed weights of the published checkpoints into
plain ones where its kernels for them are not installed; these kernels go around router and experts, whose values are
not reached under them. transformers: `models/gpt_oss/modeling_gpt_oss.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import (
    EXPERT_SETTINGS,
    EXPERT_SITES,
    NO_NEURONS,
    USUAL_MODULES,
    USUAL_SEQUENCE,
    USUAL_SETTINGS,
    USUAL_SIZES,
)
from cutaway.sites import sink, softmax_input

GPT_OSS = Family(
    name="gpt_oss",
    architectures=("GptOssForCausalLM",),
    checkpoints=(
        "openai/gpt-oss-20b",
        "openai/gpt-oss-120b",
        "openai/gpt-oss-safeguard-20b",
        "openai/gpt-oss-safeguard-120b",
    ),
    modules={**USUAL_MODULES, "mlp": {"router": "router", "experts": "experts"}},
    sizes={
        **{name: key for name, key in USUAL_SIZES.items() if name != "intermediate_size"},
        "num_experts": "num_local_experts",
        "experts_per_token": "num_experts_per_tok",
    },
    values={
        **{name: site for name, site in USUAL_SEQUENCE.items() if name not in NO_NEURONS},
        **EXPERT_SITES,
        "attention_scores": softmax_input(sinks=True),
        "attention_sinks": sink(),
    },
    unavailable=NO_NEURONS,
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS
    | EXPERT_SETTINGS
    | {
        "attention_bias",
        "experts_per_token",
        "initial_context_length",
        "intermediate_size",
        "layer_types",
        "sliding_window",
        "swiglu_alpha",
        "swiglu_limit",
    },
)
