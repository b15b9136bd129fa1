"""GPT-NeoX and Pythia: a block with two norms, parallel or sequential as its config says.

Query, key and value come of one projection, in which each head's three stand side by side. In the parallel block
attention and MLP read the same stream through a norm each. transformers: `models/gpt_neox/modeling_gpt_neox.py`.
"""

from cutaway.families.family import Family, Variant
from cutaway.families.stored import USUAL_WEIGHTS, fused, stored_in
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import stream_at

GPT_NEOX = Family(
    name="gpt_neox",
    architectures=("GPTNeoXForCausalLM",),
    checkpoints=(
        "EleutherAI/pythia-14m",
        "EleutherAI/pythia-70m",
        "EleutherAI/pythia-160m",
        "EleutherAI/pythia-410m",
        "EleutherAI/pythia-1b",
        "EleutherAI/pythia-1.4b",
        "EleutherAI/pythia-2.8b",
        "EleutherAI/pythia-6.9b",
        "EleutherAI/pythia-12b",
        "EleutherAI/gpt-neox-20b",
    ),
    modules={
        "model": {
            "embed_tokens": "gpt_neox.embed_in",
            "layers": "gpt_neox.layers",
            "norm": "gpt_neox.final_layer_norm",
            "lm_head": "lm_head",
        },
        "layer": {
            "input_layernorm": "input_layernorm",
            "self_attn": "attention",
            "post_attention_layernorm": "post_attention_layernorm",
            "mlp": "mlp",
        },
        "attention": {"o_proj": "dense"},
        "mlp": {"act_fn": "act", "down_proj": "dense_4h_to_h"},
    },
    sizes={
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "num_heads": "num_attention_heads",
        "vocab_size": "vocab_size",
        "intermediate_size": "intermediate_size",
    },
    values={
        **USUAL_SITES,
    },
    unavailable={
        "layer_mid": "This checkpoint's blocks are parallel: attention and MLP each read the stream that enters the "
        "block, so no stream passes between them. `layer_input` enters the block, `layer_output` leaves it.",
    },
    weights={
        **USUAL_WEIGHTS,
        **fused("query_key_value", "W_Q", "W_K", "W_V", by_head=True),
        "W_in": stored_in("dense_h_to_4h"),
    },
    stream=("mlp_output", "attention_output", "layer_input"),
    variants=(
        Variant(
            "use_parallel_residual",
            is_=False,
            stream=("attention_output", "layer_input", "mlp_output"),
            values={"layer_mid": stream_at("post_attention_layernorm")},
        ),
    ),
    settings=frozenset(
        {
            "attention_bias",
            "attention_dropout",
            "classifier_dropout",
            "hidden_act",
            "hidden_dropout",
            "initializer_range",
            "is_decoder",
            "layer_norm_eps",
            "max_position_embeddings",
            "rope_parameters",
            "tie_word_embeddings",
            "use_parallel_residual",
        }
    ),
)
