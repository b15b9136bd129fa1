"""StableLM: Llama's names with LayerNorm and a rotary on a quarter of each head, in a sequential or a parallel block.

The 3B and 1.6B are sequential. The 12B (`use_parallel_residual`) has one norm, which attention and MLP both read, and
norms queries and keys before the rotary, each head by a norm of its own (`qk_layernorm`). The sum is in one order in
both. transformers: `models/stablelm/modeling_stablelm.py`.
"""

from cutaway.families.family import Family, Variant
from cutaway.families.usual import UNROTATED, USUAL_MODULES, USUAL_SITES, USUAL_SIZES
from cutaway.sites import input_of, output_of, stream_at

STABLELM = Family(
    name="stablelm",
    architectures=("StableLmForCausalLM",),
    checkpoints=(
        "stabilityai/stablelm-3b-4e1t",
        "stabilityai/stablelm-zephyr-3b",
        "stabilityai/stable-code-3b",
        "stabilityai/stable-code-instruct-3b",
        "stabilityai/stablelm-2-1_6b",
        "stabilityai/stablelm-2-1_6b-chat",
        "stabilityai/stablelm-2-zephyr-1_6b",
        "stabilityai/stablelm-2-12b",
        "stabilityai/stablelm-2-12b-chat",
    ),
    modules={
        **USUAL_MODULES,
        "layer": {"input_layernorm": "input_layernorm", "self_attn": "self_attn", "mlp": "mlp"},
    },
    sizes=USUAL_SIZES,
    values={
        **USUAL_SITES,
        **UNROTATED,
        "mlp_norm_output": output_of("input_layernorm"),
        "mlp_input": input_of("mlp", argument="x"),
    },
    unavailable={
        "layer_mid": "This checkpoint's blocks are parallel: attention and MLP read the same normed stream, so no "
        "stream passes between them. `layer_input` enters the block, `layer_output` leaves it.",
    },
    stream=("layer_input", "attention_output", "mlp_output"),
    variants=(
        Variant(
            "use_parallel_residual",
            is_=False,
            modules={"layer": {"post_attention_layernorm": "post_attention_layernorm"}},
            values={
                "layer_mid": stream_at("post_attention_layernorm"),
                "mlp_norm_output": output_of("post_attention_layernorm"),
            },
        ),
        Variant(
            "qk_layernorm",
            is_=True,
            modules={"attention": {"q_norm": "q_layernorm", "k_norm": "k_layernorm"}},
            values={"queries_before_rotary": output_of("q_norm"), "keys_before_rotary": output_of("k_norm")},
        ),
    ),
    settings=frozenset(
        {
            "attention_dropout",
            "hidden_act",
            "hidden_dropout",
            "initializer_range",
            "layer_norm_eps",
            "max_position_embeddings",
            "partial_rotary_factor",
            "qk_layernorm",
            "rope_parameters",
            "rope_theta",
            "tie_word_embeddings",
            "use_parallel_residual",
            "use_qkv_bias",
        }
    ),
)
