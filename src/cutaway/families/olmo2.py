"""OLMo 2: Llama's block with its norms behind the sublayers, before what they return is added to the stream.

Nothing is normed on the way in: attention reads `layer_input` itself and the MLP `layer_mid`. `attention_output` and
`mlp_output` are what the norms behind the sublayers give, since that is what the stream gains. Queries and keys are
normed before the rotary, over all heads at once and not head by head. transformers: `models/olmo2/modeling_olmo2.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import USUAL_MODULES, USUAL_SEQUENCE, USUAL_SETTINGS, USUAL_SIZES
from cutaway.sites import output_of, stream_at

_NONE = "There is no norm before the {}, which reads {} itself; the norm stands behind it."
_READ = {
    "attention_norm_output": _NONE.format("attention", "`layer_input`"),
    "mlp_norm_output": _NONE.format("MLP", "`layer_mid`"),
}

OLMO2 = Family(
    name="olmo2",
    architectures=("Olmo2ForCausalLM",),
    checkpoints=(
        "allenai/OLMo-2-0425-1B",
        "allenai/OLMo-2-0425-1B-Instruct",
        "allenai/OLMo-2-1124-7B",
        "allenai/OLMo-2-1124-7B-Instruct",
        "allenai/OLMo-2-1124-13B",
        "allenai/OLMo-2-1124-13B-Instruct",
        "allenai/OLMo-2-0325-32B",
        "allenai/OLMo-2-0325-32B-Instruct",
    ),
    modules={
        **USUAL_MODULES,
        "layer": {"self_attn": "self_attn", "mlp": "mlp"},
        "attention": {**USUAL_MODULES["attention"], "q_norm": "q_norm", "k_norm": "k_norm"},
    },
    sizes=USUAL_SIZES,
    values={
        **{name: site for name, site in USUAL_SEQUENCE.items() if name not in _READ},
        "queries_before_rotary": output_of("q_norm", split=("num_heads", "qk_head_dim"), swapped=True),
        "keys_before_rotary": output_of("k_norm", split=("num_kv_heads", "qk_head_dim"), swapped=True),
        "attention_output": output_of("post_attention_layernorm", of="layer"),
        "layer_mid": stream_at("mlp"),
        "mlp_output": output_of("post_feedforward_layernorm", of="layer"),
    },
    unavailable=_READ,
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS | {"attention_bias"},
)
