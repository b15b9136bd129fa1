"""Bloom: GPT-2's block without learned positions. Distances come into the scores by ALiBi, and the embedding is normed.

A head's scores have its slope times the key's position added, which is the same as a penalty for the distance:
`attention_scores` hold it. The attention and the MLP are given the stream and add to it themselves, so what they add,
`attention_output` and `mlp_output`, is what their last matrices return. One matrix gives queries, keys and values, side
by side in each head. A norm stands between `token_embeddings` and the first block. Attention is computed in the module
itself, without transformers' interface, in one way alone. transformers: `models/bloom/modeling_bloom.py`.
"""

from cutaway.families.family import Family, Refusal
from cutaway.families.stored import USUAL_WEIGHTS, fused
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import output_of, stream_at

_OWN = "Bloom computes its attention in the module itself, and calls no function to which {} would be given."
_INSIDE = {
    "attention_queries": _OWN.format("queries"),
    "attention_keys": _OWN.format("keys"),
    "attention_values": _OWN.format("values"),
    "attention_head_outputs": "Bloom computes its attention in the module itself, and calls no function that would "
    "return them. Side by side they are `attention_premix`.",
}

BLOOM = Family(
    name="bloom",
    architectures=("BloomForCausalLM",),
    checkpoints=(
        "bigscience/bloom-560m",
        "bigscience/bloom-1b1",
        "bigscience/bloom-1b7",
        "bigscience/bloom-3b",
        "bigscience/bloom-7b1",
        "bigscience/bloom",
        "bigscience/bloomz-560m",
        "bigscience/bloomz-1b1",
        "bigscience/bloomz-1b7",
        "bigscience/bloomz-3b",
        "bigscience/bloomz-7b1",
        "bigscience/bloomz",
    ),
    modules={
        "model": {
            "embed_tokens": "transformer.word_embeddings",
            "layers": "transformer.h",
            "norm": "transformer.ln_f",
            "lm_head": "lm_head",
        },
        "layer": {
            "input_layernorm": "input_layernorm",
            "self_attn": "self_attention",
            "post_attention_layernorm": "post_attention_layernorm",
            "mlp": "mlp",
        },
        "attention": {"o_proj": "dense"},
        "mlp": {"up_proj": "dense_h_to_4h", "act_fn": "gelu_impl", "down_proj": "dense_4h_to_h"},
    },
    sizes={
        "num_layers": "n_layer",
        "hidden_size": "hidden_size",
        "num_heads": "n_head",
        "vocab_size": "vocab_size",
    },
    values={
        **{name: site for name, site in USUAL_SITES.items() if name not in _INSIDE},
        "attention_output": output_of("o_proj"),
        "layer_mid": stream_at("post_attention_layernorm"),
        "mlp_output": output_of("down_proj"),
    },
    unavailable=_INSIDE,
    weights={**USUAL_WEIGHTS, **fused("query_key_value", "W_Q", "W_K", "W_V", by_head=True)},
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=frozenset(
        {
            "attention_dropout",
            "attention_softmax_in_fp32",
            "bias_dropout_fusion",
            "hidden_dropout",
            "initializer_range",
            "layer_norm_epsilon",
            "masked_softmax_fusion",
            "offset_alibi",
            "pretraining_tp",
            "seq_length",
            "skip_bias_add",
            "skip_bias_add_qkv",
            "tie_word_embeddings",
        }
    ),
    refused=(
        Refusal(
            "apply_residual_connection_post_layernorm",
            "what the sublayers add to is then the norm's output, so that `layer_input` is no term of the stream.",
        ),
        Refusal(
            "slow_but_exact", "the last matrices are then multiplied by in slices, past the modules that hold them."
        ),
    ),
)
