"""Qwen2 and Qwen2.5: Llama's block, with biases on queries, keys and values alone.

The upper layers may read a sliding window of the prompt (`use_sliding_window`, from `max_window_layers` on, or as
`layer_types` lists them): the mask is another there, and no value's meaning.
transformers: `models/qwen2/modeling_qwen2.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import USUAL_MODULES, USUAL_SEQUENCE, USUAL_SETTINGS, USUAL_SIZES

QWEN2 = Family(
    name="qwen2",
    architectures=("Qwen2ForCausalLM",),
    checkpoints=(
        "Qwen/Qwen2-0.5B",
        "Qwen/Qwen2-1.5B",
        "Qwen/Qwen2-7B",
        "Qwen/Qwen2-72B",
        "Qwen/Qwen2.5-0.5B",
        "Qwen/Qwen2.5-1.5B",
        "Qwen/Qwen2.5-3B",
        "Qwen/Qwen2.5-7B",
        "Qwen/Qwen2.5-14B",
        "Qwen/Qwen2.5-32B",
        "Qwen/Qwen2.5-72B",
        "Qwen/Qwen2.5-Coder-7B",
        "Qwen/Qwen2.5-Math-7B",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    ),
    modules=USUAL_MODULES,
    sizes=USUAL_SIZES,
    values=USUAL_SEQUENCE,
    unavailable={},
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS | {"layer_types", "max_window_layers", "sliding_window", "use_sliding_window"},
)
