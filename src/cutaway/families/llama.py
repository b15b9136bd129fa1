"""Llama, and what is built like it: a sequential block with RMSNorm, a gated MLP and grouped heads.

Every type of `rope_parameters` changes cosines and sines alone, so queries and keys are what they are after it.
`pretraining_tp` is not read by transformers 5. transformers: `models/llama/modeling_llama.py`.
"""

from cutaway.families.family import Family
from cutaway.sites import attention_argument, attention_result, input_of, output_of, pattern, softmax_input, stream_at

LLAMA = Family(
    name="llama",
    architectures=("LlamaForCausalLM",),
    checkpoints=(
        "meta-llama/Llama-2-7b-hf",
        "meta-llama/Llama-2-13b-hf",
        "meta-llama/Meta-Llama-3-8B",
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Llama-3.2-1B",
        "meta-llama/Llama-3.2-3B",
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        "HuggingFaceTB/SmolLM2-135M",
        "HuggingFaceTB/SmolLM2-360M",
        "HuggingFaceTB/SmolLM2-1.7B",
    ),
    modules={
        "model": {
            "embed_tokens": "model.embed_tokens",
            "layers": "model.layers",
            "norm": "model.norm",
            "lm_head": "lm_head",
        },
        "layer": {
            "input_layernorm": "input_layernorm",
            "self_attn": "self_attn",
            "post_attention_layernorm": "post_attention_layernorm",
            "mlp": "mlp",
        },
        "attention": {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "o_proj"},
        "mlp": {"gate_proj": "gate_proj", "up_proj": "up_proj", "act_fn": "act_fn", "down_proj": "down_proj"},
    },
    sizes={
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
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
        "layer_mid": stream_at("post_attention_layernorm"),
        "mlp_norm_output": output_of("post_attention_layernorm"),
        "mlp_input": input_of("mlp", argument="x"),
        "mlp_activation": output_of("act_fn"),
        "mlp_neurons": input_of("down_proj", argument="input"),
        "mlp_output": output_of(),
        "layer_output": output_of(),
        "final_norm_output": output_of("norm"),
        "lm_head_output": output_of("lm_head"),
        "logits": output_of(key="logits"),
    },
    unavailable={},
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=frozenset(
        {
            "attention_bias",
            "attention_dropout",
            "hidden_act",
            "initializer_range",
            "is_llama_config",
            "max_position_embeddings",
            "mlp_bias",
            "pretraining_tp",
            "rms_norm_eps",
            "rope_parameters",
            "tie_word_embeddings",
        }
    ),
)
