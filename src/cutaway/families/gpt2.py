"""GPT-2: a sequential block with learned positions, fused query, key and value, and a head tied to the embedding.

Projections are `Conv1D`, whose weight is the transpose of a linear layer's. Position embeddings are added after
`token_embeddings`; their sum enters the first block. `scale_attn_weights` and `scale_attn_by_inverse_layer_idx` are
in the scaling that attention is called with, so scores are what enters the softmax under each. transformers:
`models/gpt2/modeling_gpt2.py`.
"""

from cutaway.families.family import Family, Refusal
from cutaway.families.stored import USUAL_WEIGHTS, fused, stored_in
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import input_of, stream_at

GPT2 = Family(
    name="gpt2",
    architectures=("GPT2LMHeadModel",),
    checkpoints=(
        "openai-community/gpt2",
        "openai-community/gpt2-medium",
        "openai-community/gpt2-large",
        "openai-community/gpt2-xl",
        "distilbert/distilgpt2",
    ),
    modules={
        "model": {
            "embed_tokens": "transformer.wte",
            "layers": "transformer.h",
            "norm": "transformer.ln_f",
            "lm_head": "lm_head",
        },
        "layer": {
            "input_layernorm": "ln_1",
            "self_attn": "attn",
            "post_attention_layernorm": "ln_2",
            "mlp": "mlp",
        },
        "attention": {"o_proj": "c_proj"},
        "mlp": {"act_fn": "act", "down_proj": "c_proj"},
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
        "attention_premix": input_of("o_proj", argument="x", split=("num_heads", "head_dim")),
        "layer_mid": stream_at("post_attention_layernorm"),
        "mlp_neurons": input_of("down_proj", argument="x"),
    },
    unavailable={},
    weights={**USUAL_WEIGHTS, **fused("c_attn", "W_Q", "W_K", "W_V"), "W_in": stored_in("c_fc")},
    stream=("attention_output", "layer_input", "mlp_output"),
    settings=frozenset(
        {
            "activation_function",
            "attn_pdrop",
            "embd_pdrop",
            "initializer_range",
            "layer_norm_epsilon",
            "n_ctx",
            "n_positions",
            "output_past",
            "predict_special_tokens",
            "resid_pdrop",
            "scale_attn_by_inverse_layer_idx",
            "scale_attn_weights",
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
            "tie_word_embeddings",
        }
    ),
    refused=(
        Refusal(
            "add_cross_attention",
            "its blocks have a second attention, over an encoder's output, for which the vocabulary has no names.",
        ),
        Refusal(
            "reorder_and_upcast_attn",
            "attention then goes past transformers' attention interface. Load the model with "
            "attn_implementation='sdpa', under which transformers leaves the setting out.",
            under="eager",
        ),
    ),
    positions_from_mask=True,
)
