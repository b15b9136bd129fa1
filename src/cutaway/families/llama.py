"""Llama, and what is built like it: a sequential block with RMSNorm, a gated MLP and grouped heads.

Every type of `rope_parameters` changes cosines and sines alone, so queries and keys are what they are after it.
`pretraining_tp` is not read by transformers 5. transformers: `models/llama/modeling_llama.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import USUAL_MODULES, USUAL_SEQUENCE, USUAL_SETTINGS, USUAL_SIZES

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
    modules=USUAL_MODULES,
    sizes=USUAL_SIZES,
    values=USUAL_SEQUENCE,
    unavailable={},
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS | {"attention_bias", "is_llama_config", "mlp_bias", "pretraining_tp"},
)
