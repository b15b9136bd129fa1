"""Qwen3: Llama's block, with a norm over each head's queries and keys before the rotary, and heads of a width of
their own.

The norms stand in the place of Qwen2's biases, and are shared by all heads of a layer. `attention_queries` and
`attention_keys` are what comes of them after the rotary. Windows are as in Qwen2.
transformers: `models/qwen3/modeling_qwen3.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import USUAL_MODULES, USUAL_SEQUENCE, USUAL_SETTINGS, USUAL_SIZES
from cutaway.sites import output_of

QWEN3 = Family(
    name="qwen3",
    architectures=("Qwen3ForCausalLM",),
    checkpoints=(
        "Qwen/Qwen3-0.6B",
        "Qwen/Qwen3-1.7B",
        "Qwen/Qwen3-4B",
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-14B",
        "Qwen/Qwen3-32B",
        "Qwen/Qwen3-0.6B-Base",
        "Qwen/Qwen3-1.7B-Base",
        "Qwen/Qwen3-4B-Base",
        "Qwen/Qwen3-8B-Base",
        "Qwen/Qwen3-14B-Base",
        "Qwen/Qwen3-4B-Instruct-2507",
    ),
    modules={
        **USUAL_MODULES,
        "attention": {**USUAL_MODULES["attention"], "q_norm": "q_norm", "k_norm": "k_norm"},
    },
    sizes=USUAL_SIZES,
    values={
        **USUAL_SEQUENCE,
        "queries_before_rotary": output_of("q_norm", swapped=True),
        "keys_before_rotary": output_of("k_norm", swapped=True),
    },
    unavailable={},
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS
    | {"attention_bias", "layer_types", "max_window_layers", "sliding_window", "use_sliding_window"},
)
