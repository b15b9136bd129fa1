"""Falcon: a parallel block with one key head, or a few, for all query heads.

The 7B's attention and MLP read one norm, and its heads share one key head. The 40B, the 180B and Falcon 2
(`new_decoder_architecture`) have a key head for each group, and the two former a norm for each sublayer. The RW
checkpoints are sequential, with as many key heads as heads, and bring distances into the scores by ALiBi in the place
of the rotary. What the attention returns is added to what the MLP returns, and that to the stream. One matrix gives
queries, keys and values. Attention is computed in the module itself, without transformers' interface: loaded with
`attn_implementation="eager"` it takes a softmax that can be looked into, and else one call of a kernel.
transformers: `models/falcon/modeling_falcon.py`.
"""

from cutaway.families.family import Family, Variant
from cutaway.families.stored import USUAL_WEIGHTS, fused
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import input_of, output_of, pattern, stream_at

_OWN = "Falcon computes its attention in the module itself, and calls no function {}."
_INSIDE = {
    "attention_queries": _OWN.format("to which queries would be given"),
    "attention_keys": _OWN.format("to which keys would be given"),
    "attention_values": _OWN.format("to which values would be given"),
    "attention_head_outputs": _OWN.format("that would return them; side by side they are `attention_premix`"),
}
_KERNEL = 'This attention is one call of a kernel. Load the model with attn_implementation="eager" to have {}.'
_BEFORE_ROTARY = "{} before the rotary are a part of what `query_key_value` returns, and pass at no place of their own."
_ALIBI = "This checkpoint has no rotary: distances come into the scores by ALiBi."

FALCON = Family(
    name="falcon",
    architectures=("FalconForCausalLM",),
    checkpoints=(
        "tiiuae/falcon-7b",
        "tiiuae/falcon-7b-instruct",
        "tiiuae/falcon-40b",
        "tiiuae/falcon-40b-instruct",
        "tiiuae/falcon-180B",
        "tiiuae/falcon-11B",
        "tiiuae/falcon-rw-1b",
        "tiiuae/falcon-rw-7b",
    ),
    modules={
        "model": {
            "embed_tokens": "transformer.word_embeddings",
            "layers": "transformer.h",
            "norm": "transformer.ln_f",
            "lm_head": "lm_head",
        },
        "layer": {"input_layernorm": "input_layernorm", "self_attn": "self_attention", "mlp": "mlp"},
        "attention": {"o_proj": "dense"},
        "mlp": {"up_proj": "dense_h_to_4h", "act_fn": "act", "down_proj": "dense_4h_to_h"},
    },
    sizes={
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_kv_heads",
        "vocab_size": "vocab_size",
        "intermediate_size": "ffn_hidden_size",
    },
    values={
        **{name: site for name, site in USUAL_SITES.items() if name not in _INSIDE},
        "mlp_norm_output": output_of("input_layernorm"),
        "mlp_input": input_of("mlp", argument="x"),
        "attention_probabilities": pattern(dropout=False),
    },
    unavailable={
        **_INSIDE,
        "layer_mid": "This checkpoint's blocks are parallel: attention and MLP read the same stream, and none passes "
        "between them. `layer_input` enters the block, `layer_output` leaves it.",
        "queries_before_rotary": _BEFORE_ROTARY.format("Queries"),
        "keys_before_rotary": _BEFORE_ROTARY.format("Keys"),
    },
    weights={**USUAL_WEIGHTS, **fused("query_key_value", "W_Q", "W_K", "W_V", by_head=True)},
    stream=("mlp_output", "attention_output", "layer_input"),
    variants=(
        Variant("multi_query", is_=True, sizes={"num_kv_heads": 1}),
        Variant("new_decoder_architecture", is_=True, sizes={"num_kv_heads": "num_kv_heads"}),
        Variant(
            "num_ln_in_parallel_attn",
            is_=2,
            modules={"layer": {"input_layernorm": "ln_attn", "post_attention_layernorm": "ln_mlp"}},
            values={"mlp_norm_output": output_of("post_attention_layernorm")},
        ),
        Variant(
            "parallel_attn",
            is_=False,
            modules={"layer": {"post_attention_layernorm": "post_attention_layernorm"}},
            values={
                "layer_mid": stream_at("post_attention_layernorm"),
                "mlp_norm_output": output_of("post_attention_layernorm"),
            },
            stream=("layer_input", "attention_output", "mlp_output"),
        ),
        Variant(
            "alibi",
            is_=True,
            values={"attention_probabilities": pattern()},
            unavailable={"queries_before_rotary": _ALIBI, "keys_before_rotary": _ALIBI},
        ),
        Variant(
            "_attn_implementation",
            is_="sdpa",
            unavailable={
                "attention_scores": _KERNEL.format("scores"),
                "attention_probabilities": _KERNEL.format("the pattern"),
            },
        ),
    ),
    settings=frozenset(
        {
            "activation",
            "alibi",
            "apply_residual_connection_post_layernorm",
            "attention_dropout",
            "bias",
            "hidden_dropout",
            "initializer_range",
            "layer_norm_epsilon",
            "max_position_embeddings",
            "multi_query",
            "new_decoder_architecture",
            "num_ln_in_parallel_attn",
            "parallel_attn",
            "rope_parameters",
            "tie_word_embeddings",
        }
    ),
)
