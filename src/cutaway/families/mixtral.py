"""Mixtral: Mistral's block with eight MLPs in the place of one, of which a router gives each token two.

The router takes a softmax over all experts, and then makes the weights of the chosen ones sum to one. Nothing else
differs from Mistral but that the window of the prompt is seldom set. Noise on the router's input
(`router_jitter_noise`) is of training alone. transformers: `models/mixtral/modeling_mixtral.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import (
    EXPERT_MODULES,
    EXPERT_SETTINGS,
    EXPERT_SITES,
    NO_NEURONS,
    USUAL_MODULES,
    USUAL_SEQUENCE,
    USUAL_SETTINGS,
    USUAL_SIZES,
)

MIXTRAL = Family(
    name="mixtral",
    architectures=("MixtralForCausalLM",),
    checkpoints=(
        "mistralai/Mixtral-8x7B-v0.1",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "mistralai/Mixtral-8x22B-v0.1",
        "mistralai/Mixtral-8x22B-Instruct-v0.1",
        "NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO",
    ),
    modules={**USUAL_MODULES, "mlp": EXPERT_MODULES},
    sizes={
        **{name: key for name, key in USUAL_SIZES.items() if name != "intermediate_size"},
        "num_experts": "num_local_experts",
        "experts_per_token": "num_experts_per_tok",
    },
    values={
        **{name: site for name, site in USUAL_SEQUENCE.items() if name not in NO_NEURONS},
        **EXPERT_SITES,
    },
    unavailable=NO_NEURONS,
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS | EXPERT_SETTINGS | {"intermediate_size", "router_jitter_noise", "sliding_window"},
)
