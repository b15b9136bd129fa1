"""GPT-NeoX and Pythia: a block with two norms, parallel or sequential as its config says.

Query, key and value come of one projection, in which each head's three stand side by side. In the parallel block
attention and MLP read the same stream through a norm each. transformers: `models/gpt_neox/modeling_gpt_neox.py`.
"""

from cutaway.families.family import Family, Variant
from cutaway.sites import attention_argument, attention_result, input_of, output_of, pattern, softmax_input, stream_at

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
        "input_ids": input_of(argument="input_ids"),
        "attention_mask": input_of(argument="attention_mask"),
        "token_embeddings": output_of("embed_tokens"),
        "layer_input": input_of(),
        "attention_norm_output": output_of("input_layernorm"),
        "attention_queries": attention_argument("query"),
        "attention_keys": attention_argument("key"),
        "attention_values": attention_argument("value"),
        "attention_scores": softmax_input(),
        "attention_probabilities": pattern(),
        "attention_head_outputs": attention_result(),
        "attention_premix": input_of("o_proj", argument="input", split=("num_heads", "head_dim")),
        "attention_output": output_of(),
        "mlp_norm_output": output_of("post_attention_layernorm"),
        "mlp_input": input_of("mlp"),
        "mlp_activation": output_of("act_fn"),
        "mlp_neurons": input_of("down_proj", argument="input"),
        "mlp_output": output_of(),
        "layer_output": output_of(),
        "final_norm_output": output_of("norm"),
        "lm_head_output": output_of("lm_head"),
        "logits": output_of(key="logits"),
    },
    unavailable={
        "layer_mid": "This checkpoint's blocks are parallel: attention and MLP each read the stream that enters the "
        "block, so no stream passes between them. `layer_input` enters the block, `layer_output` leaves it.",
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
