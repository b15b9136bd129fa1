"""Gemma 3: Gemma 2's block without the soft cap of its scores, and with a norm over each head's queries and keys.

Five layers of six see a window (`layer_types`), and turn by a rotary of their own with a shorter base; every sixth sees
all. Norms multiply by 1 plus their weight, the heads' too. `attention_queries` and `attention_keys` are what comes of
their norms after the rotary. Scores are scaled by `query_pre_attn_scalar`; `attn_logit_softcapping` is not read. Where
the config sets `final_logit_softcapping`, `logits` are `lm_head_output` after its tanh. This file is for the text
model, which the 1B and the 270M are published as and the others hold inside a model of images.
transformers: `models/gemma3/modeling_gemma3.py`.
"""

from cutaway.families.family import Family, Refusal
from cutaway.families.gemma2 import GEMMA2
from cutaway.sites import output_of

GEMMA3 = Family(
    name="gemma3",
    architectures=("Gemma3ForCausalLM",),
    checkpoints=("google/gemma-3-1b-pt", "google/gemma-3-1b-it", "google/gemma-3-270m", "google/gemma-3-270m-it"),
    modules={
        **GEMMA2.modules,
        "attention": {**GEMMA2.modules["attention"], "q_norm": "q_norm", "k_norm": "k_norm"},
    },
    sizes=GEMMA2.sizes,
    values={
        **GEMMA2.values,
        "queries_before_rotary": output_of("q_norm"),
        "keys_before_rotary": output_of("k_norm"),
    },
    unavailable={},
    stream=GEMMA2.stream,
    settings=GEMMA2.settings | {"sliding_window_pattern"},
    refused=(
        Refusal(
            "use_bidirectional_attention",
            "a query then sees the keys behind it too, so that generating and positions from the end mean otherwise.",
        ),
    ),
)
