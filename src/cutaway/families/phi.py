"""Phi-1, Phi-1.5 and Phi-2: a parallel block with one norm, and a rotary on part of each head.

Attention and MLP read the same normed stream, so no stream passes between them, and their sum is added to the stream
last. transformers: `models/phi/modeling_phi.py`.
"""

from cutaway.families.family import Family, Variant
from cutaway.families.stored import USUAL_WEIGHTS, stored_in
from cutaway.families.usual import UNROTATED, USUAL_SITES
from cutaway.sites import output_of

PHI = Family(
    name="phi",
    architectures=("PhiForCausalLM",),
    checkpoints=("microsoft/phi-1", "microsoft/phi-1_5", "microsoft/phi-2"),
    modules={
        "model": {
            "embed_tokens": "model.embed_tokens",
            "layers": "model.layers",
            "norm": "model.final_layernorm",
            "lm_head": "lm_head",
        },
        "layer": {"input_layernorm": "input_layernorm", "self_attn": "self_attn", "mlp": "mlp"},
        "attention": {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "dense"},
        "mlp": {"act_fn": "activation_fn", "down_proj": "fc2"},
    },
    sizes={
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "vocab_size": "vocab_size",
        "intermediate_size": "intermediate_size",
    },
    values={
        **USUAL_SITES,
        **UNROTATED,
        "mlp_norm_output": output_of("input_layernorm"),
    },
    unavailable={
        "layer_mid": "Phi's block is parallel: attention and MLP read the same normed stream, so no stream passes "
        "between them. `layer_input` enters the block, `layer_output` leaves it.",
    },
    weights={**USUAL_WEIGHTS, "W_in": stored_in("fc1")},
    stream=("attention_output", "mlp_output", "layer_input"),
    variants=(
        Variant(
            "qk_layernorm",
            is_=True,
            modules={"attention": {"q_norm": "q_layernorm", "k_norm": "k_layernorm"}},
            values={"queries_before_rotary": output_of("q_norm"), "keys_before_rotary": output_of("k_norm")},
        ),
    ),
    settings=frozenset(
        {
            "resid_pdrop",
            "embd_pdrop",
            "attention_dropout",
            "hidden_act",
            "max_position_embeddings",
            "initializer_range",
            "layer_norm_eps",
            "tie_word_embeddings",
            "rope_parameters",
            "rope_theta",
            "partial_rotary_factor",
            "qk_layernorm",
        }
    ),
)
