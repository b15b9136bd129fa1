"""Gemma 2: Llama's block with a norm behind each sublayer as well as before it, scores and logits that a tanh keeps
within bounds, and windows on every other layer.

`attention_output` and `mlp_output` are what the norms behind the sublayers give, since that is what the stream gains;
what the sublayers return is the input of those norms. A norm multiplies by 1 plus its weight. `token_embeddings` are
rows of `embed_tokens` times the root of the stream's width, which the embedding module multiplies by itself.
`attention_scores` are after their tanh (`attn_logit_softcapping`) and scaled by `query_pre_attn_scalar`, and `logits`
are `lm_head_output` after theirs (`final_logit_softcapping`). There is no sdpa, which has no such tanh. `layer_types`,
`sliding_window` and `use_bidirectional_attention` say which keys a query sees, and change no value's meaning. Published
configs carry keys that transformers does not read: `hidden_act`, `sliding_window_size`; `cache_implementation` is for
generating. transformers: `models/gemma2/modeling_gemma2.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import USUAL_MODULES, USUAL_SEQUENCE, USUAL_SETTINGS, USUAL_SIZES
from cutaway.sites import output_of, stream_at

GEMMA2 = Family(
    name="gemma2",
    architectures=("Gemma2ForCausalLM",),
    checkpoints=(
        "google/gemma-2-2b",
        "google/gemma-2-9b",
        "google/gemma-2-27b",
        "google/gemma-2-2b-it",
        "google/gemma-2-9b-it",
        "google/gemma-2-27b-it",
        "google/gemma-2-2b-jpn-it",
        "google/shieldgemma-2b",
        "google/shieldgemma-9b",
        "princeton-nlp/gemma-2-9b-it-SimPO",
    ),
    modules={
        **USUAL_MODULES,
        "layer": {"input_layernorm": "input_layernorm", "self_attn": "self_attn", "mlp": "mlp"},
    },
    sizes=USUAL_SIZES,
    values={
        **USUAL_SEQUENCE,
        "attention_output": output_of("post_attention_layernorm", of="layer"),
        "layer_mid": stream_at("pre_feedforward_layernorm"),
        "mlp_norm_output": output_of("pre_feedforward_layernorm"),
        "mlp_output": output_of("post_feedforward_layernorm", of="layer"),
    },
    unavailable={},
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS
    | {
        "attention_bias",
        "attn_logit_softcapping",
        "cache_implementation",
        "final_logit_softcapping",
        "hidden_activation",
        "layer_types",
        "query_pre_attn_scalar",
        "sliding_window",
        "sliding_window_size",
        "use_bidirectional_attention",
    },
)
