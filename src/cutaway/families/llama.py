"""Llama, and what is built like it: a sequential block with RMSNorm, a gated MLP and grouped heads.

Every type of `rope_parameters` changes cosines and sines alone, so queries and keys are what they are after it.
`pretraining_tp` is not read by transformers 5. transformers: `models/llama/modeling_llama.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import input_of, stream_at

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
        **USUAL_SITES,
        "layer_mid": stream_at("post_attention_layernorm"),
        "mlp_input": input_of("mlp", argument="x"),
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
