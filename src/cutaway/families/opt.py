"""OPT and Galactica: GPT-2's plan with separate projections, learned positions from the third row on, and an MLP that
has no module of its own.

The MLP is `fc1` and `fc2` of the block, which are called with a row for each token. Queries are scaled where they are
projected, so `attention_queries` are what the scores are products of, and scores are not scaled again. Positions are
counted from the mask by the model itself. OPT-350m alone has its norms in the stream, behind each sublayer
(`do_layer_norm_before` is false), none before the head, and an embedding narrower than the stream.
transformers: `models/opt/modeling_opt.py`.
"""

from cutaway.families.family import Family, Refusal, Variant
from cutaway.families.stored import USUAL_WEIGHTS, stored_in
from cutaway.families.stream import normed
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import input_of, output_of, stream_at

_BEHIND = "This checkpoint's norms stand behind its sublayers, in the stream: {}"

OPT = Family(
    name="opt",
    architectures=("OPTForCausalLM",),
    checkpoints=(
        "facebook/opt-125m",
        "facebook/opt-350m",
        "facebook/opt-1.3b",
        "facebook/opt-2.7b",
        "facebook/opt-6.7b",
        "facebook/opt-13b",
        "facebook/opt-30b",
        "facebook/opt-66b",
        "facebook/opt-iml-1.3b",
        "facebook/galactica-125m",
        "facebook/galactica-1.3b",
        "facebook/galactica-6.7b",
    ),
    modules={
        "model": {
            "embed_tokens": "model.decoder.embed_tokens",
            "layers": "model.decoder.layers",
            "lm_head": "lm_head",
        },
        "layer": {"self_attn": "self_attn", "mlp": ""},
        "attention": {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "out_proj"},
        "mlp": {"up_proj": "fc1", "act_fn": "activation_fn", "down_proj": "fc2"},
    },
    sizes={
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "num_heads": "num_attention_heads",
        "vocab_size": "vocab_size",
        "intermediate_size": "ffn_dim",
    },
    values={
        **{name: site for name, site in USUAL_SITES.items() if not name.endswith("norm_output")},
        "layer_mid": stream_at("fc1", rows=True),
        "mlp_input": input_of("fc1", argument="input", of="layer", rows=True),
        "mlp_activation": output_of("act_fn", rows=True),
        "mlp_neurons": input_of("down_proj", argument="input", rows=True),
        "mlp_output": output_of("down_proj", rows=True),
    },
    unavailable={
        "attention_norm_output": _BEHIND.format("attention reads `layer_input` itself."),
        "mlp_norm_output": _BEHIND.format("the MLP reads `layer_mid` itself, which a norm has returned."),
        "final_norm_output": "This checkpoint has no norm before the head: the last block's own ends it.",
    },
    weights={**USUAL_WEIGHTS, "W_in": stored_in("up_proj")},
    stream=(
        normed((normed(("layer_input", "attention_output"), "self_attn_layer_norm"), "mlp_output"), "final_layer_norm"),
    ),
    no_lens="there is no norm before the head: the last block's own ends it.",
    variants=(
        Variant(
            "do_layer_norm_before",
            is_=True,
            modules={
                "model": {"norm": "model.decoder.final_layer_norm"},
                "layer": {
                    "input_layernorm": "self_attn_layer_norm",
                    "post_attention_layernorm": "final_layer_norm",
                },
            },
            values={
                "attention_norm_output": output_of("input_layernorm"),
                "layer_mid": stream_at("post_attention_layernorm", rows=True),
                "mlp_norm_output": output_of("post_attention_layernorm", rows=True),
                "final_norm_output": output_of("norm"),
            },
            stream=("layer_input", "attention_output", "mlp_output"),
            no_lens="",
        ),
        Variant(
            "word_embed_proj_dim",
            unlike="hidden_size",
            unavailable={
                "token_embeddings": "This checkpoint's embedding is narrower than the stream, and `project_in` widens "
                "it; what enters the first block is `layers[0].layer_input`.",
            },
            no_lens="`project_out` narrows what leaves the last block before the head reads it.",
        ),
    ),
    settings=frozenset(
        {
            "activation_dropout",
            "activation_function",
            "attention_dropout",
            "do_layer_norm_before",
            "dropout",
            "enable_bias",
            "init_std",
            "layer_norm_elementwise_affine",
            "layerdrop",
            "learned_embeddings",
            "max_position_embeddings",
            "tie_word_embeddings",
            "word_embed_proj_dim",
        }
    ),
    refused=(
        Refusal(
            "_remove_final_layer_norm",
            "the head then reads the last block's output without a norm, though the blocks have theirs in front.",
        ),
    ),
)
