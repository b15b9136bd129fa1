"""GPT-J: a parallel block with one norm, without biases in attention, and a rotary that turns neighbouring pairs.

Attention and MLP read the same normed stream and are added to each other first, as in Phi. Of each head the first
`rotary_dim` dimensions turn, in pairs of neighbours. The head has a bias. `scale_attn_weights` and `rotary` of old
configs are not read by transformers 5. transformers: `models/gptj/modeling_gptj.py`.
"""

from cutaway.families.family import Family
from cutaway.families.stored import USUAL_WEIGHTS, stored_in
from cutaway.families.usual import UNROTATED, USUAL_SITES
from cutaway.sites import output_of

GPTJ = Family(
    name="gptj",
    architectures=("GPTJForCausalLM",),
    checkpoints=(
        "EleutherAI/gpt-j-6b",
        "togethercomputer/GPT-JT-6B-v1",
        "nomic-ai/gpt4all-j",
        "databricks/dolly-v1-6b",
        "PygmalionAI/pygmalion-6b",
    ),
    modules={
        "model": {
            "embed_tokens": "transformer.wte",
            "layers": "transformer.h",
            "norm": "transformer.ln_f",
            "lm_head": "lm_head",
        },
        "layer": {"input_layernorm": "ln_1", "self_attn": "attn", "mlp": "mlp"},
        "attention": {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "out_proj"},
        "mlp": {"up_proj": "fc_in", "act_fn": "act", "down_proj": "fc_out"},
    },
    sizes={
        "num_layers": "n_layer",
        "hidden_size": "n_embd",
        "num_heads": "n_head",
        "vocab_size": "vocab_size",
        "intermediate_size": "n_inner",
    },
    values={
        **USUAL_SITES,
        **UNROTATED,
        "mlp_norm_output": output_of("input_layernorm"),
    },
    unavailable={
        "layer_mid": "GPT-J's block is parallel: attention and MLP read the same normed stream, so no stream passes "
        "between them. `layer_input` enters the block, `layer_output` leaves it.",
    },
    weights={**USUAL_WEIGHTS, "W_in": stored_in("up_proj")},
    stream=("attention_output", "mlp_output", "layer_input"),
    settings=frozenset(
        {
            "activation_function",
            "attn_pdrop",
            "embd_pdrop",
            "initializer_range",
            "layer_norm_epsilon",
            "n_positions",
            "resid_pdrop",
            "rotary",
            "rotary_dim",
            "scale_attn_weights",
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
            "tie_word_embeddings",
        }
    ),
)
