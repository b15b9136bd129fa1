"""Phi-3, Phi-3.5 and Phi-4: Llama's block with its projections fused: queries, keys and values are one matrix, and so
are the MLP's gate and what it gates.

`qkv_proj` holds the three whole, one after the other, and `gate_up_proj` the gate before the rest. The rotary may turn
a part of each head (`partial_rotary_factor`), and the longer checkpoints change its frequencies past
`original_max_position_embeddings`; both change cosines and sines alone. `sliding_window` is the same on every layer,
and changes the mask. `embd_pdrop`, `interpolate_factor` and `full_attn_mod`, which published configs set, are not read
by transformers. transformers: `models/phi3/modeling_phi3.py`.
"""

from cutaway.families.family import Family
from cutaway.families.stored import USUAL_WEIGHTS, fused
from cutaway.families.usual import USUAL_MODULES, USUAL_SETTINGS, USUAL_SITES, USUAL_SIZES
from cutaway.sites import stream_at

_FUSED = "{} before the rotary are a part of what `qkv_proj` returns, and pass at no place of their own."

PHI3 = Family(
    name="phi3",
    architectures=("Phi3ForCausalLM",),
    checkpoints=(
        "microsoft/Phi-3-mini-4k-instruct",
        "microsoft/Phi-3-mini-128k-instruct",
        "microsoft/Phi-3-medium-4k-instruct",
        "microsoft/Phi-3-medium-128k-instruct",
        "microsoft/Phi-3.5-mini-instruct",
        "microsoft/phi-4",
        "microsoft/Phi-4-mini-instruct",
        "microsoft/Phi-4-mini-reasoning",
        "microsoft/Phi-4-reasoning",
        "microsoft/Phi-4-reasoning-plus",
    ),
    modules={
        **USUAL_MODULES,
        "attention": {"o_proj": "o_proj"},
        "mlp": {"act_fn": "activation_fn", "down_proj": "down_proj"},
    },
    sizes=USUAL_SIZES,
    values={**USUAL_SITES, "layer_mid": stream_at("post_attention_layernorm")},
    unavailable={
        "queries_before_rotary": _FUSED.format("Queries"),
        "keys_before_rotary": _FUSED.format("Keys"),
    },
    weights={
        **USUAL_WEIGHTS,
        **fused("qkv_proj", "W_Q", "W_K", "W_V"),
        **fused("gate_up_proj", "W_gate", "W_in"),
    },
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS
    | {
        "embd_pdrop",
        "full_attn_mod",
        "interpolate_factor",
        "original_max_position_embeddings",
        "partial_rotary_factor",
        "resid_pdrop",
        "sliding_window",
    },
)
