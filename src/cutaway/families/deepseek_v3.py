"""DeepSeek-V3 and R1: keys and values are expanded from one narrow latent, and experts are chosen within groups.

What the cache keeps of a token is `latent_kv` and one rotated key that all heads share; each head's key is a part
expanded from the latent, and that shared part. Queries come of a latent of their own, or, where `q_lora_rank` is null
as in Moonlight, of the stream. So queries and keys are wider than values. The first `first_k_dense_replace` layers have
one MLP; the others have routed experts and one that every token goes through. A bias on the router's scores takes part
in the choice, and in no weight. transformers: `models/deepseek_v3/modeling_deepseek_v3.py`.
"""

from cutaway.families.family import Family, Kind, Variant
from cutaway.families.usual import (
    EXPERT_MODULES,
    EXPERT_SETTINGS,
    EXPERT_SITES,
    NO_NEURONS,
    UNROTATED,
    USUAL_MODULES,
    USUAL_SEQUENCE,
    USUAL_SETTINGS,
)
from cutaway.sites import output_of

DEEPSEEK_V3 = Family(
    name="deepseek_v3",
    architectures=("DeepseekV3ForCausalLM",),
    checkpoints=(
        "deepseek-ai/DeepSeek-V3",
        "deepseek-ai/DeepSeek-V3-Base",
        "deepseek-ai/DeepSeek-V3-0324",
        "deepseek-ai/DeepSeek-V3.1",
        "deepseek-ai/DeepSeek-V3.1-Base",
        "deepseek-ai/DeepSeek-R1",
        "deepseek-ai/DeepSeek-R1-Zero",
        "deepseek-ai/DeepSeek-R1-0528",
        "moonshotai/Moonlight-16B-A3B",
    ),
    modules={**USUAL_MODULES, "attention": {"o_proj": "o_proj"}},
    sizes={
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "head_dim": "v_head_dim",
        "qk_head_dim": "qk_head_dim",
        "vocab_size": "vocab_size",
        "intermediate_size": "intermediate_size",
        "num_experts": "n_routed_experts",
        "experts_per_token": "num_experts_per_tok",
        "kv_latent_size": "kv_lora_rank",
    },
    values={
        **{name: site for name, site in USUAL_SEQUENCE.items() if name not in UNROTATED},
        "latent_kv": output_of("kv_a_layernorm"),
        "queries_before_rotary": output_of("q_b_proj", split=("num_heads", "qk_head_dim"), swapped=True),
    },
    unavailable={
        "keys_before_rotary": "Of a key only the part that all heads share passes the rotary, and the rest is expanded "
        "from the latent behind it, with the cache's: no tensor has whole keys unrotated. `latent_kv` is what the rest "
        "is expanded from.",
    },
    stream=("layer_input", "attention_output", "mlp_output"),
    variants=(
        Variant(
            "q_lora_rank",
            is_=None,
            modules={"attention": {"q_proj": "q_proj"}},
            values={"queries_before_rotary": UNROTATED["queries_before_rotary"]},
        ),
    ),
    kinds=(
        Kind(
            name="experts",
            has="mlp.experts",
            modules={"mlp": {**EXPERT_MODULES, "shared_expert": "shared_experts"}},
            values={**EXPERT_SITES, "shared_expert_output": output_of("shared_expert")},
            unavailable=NO_NEURONS,
        ),
    ),
    settings=USUAL_SETTINGS
    | EXPERT_SETTINGS
    | {
        "attention_bias",
        "aux_loss_alpha",
        "ep_size",
        "first_k_dense_replace",
        "head_dim",
        "moe_intermediate_size",
        "moe_layer_freq",
        "n_group",
        "n_shared_experts",
        "norm_topk_prob",
        "num_nextn_predict_layers",
        "pretraining_tp",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "rope_interleave",
        "routed_scaling_factor",
        "scoring_func",
        "seq_aux",
        "topk_group",
        "topk_method",
    },
)
