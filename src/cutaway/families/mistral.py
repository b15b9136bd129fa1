"""Mistral 7B and its successors of the same class: Llama's block, in which every layer may read a window of the prompt.

The first version reads 4,096 tokens back (`sliding_window`); later ones set it to null and read all. The mask is
another, and no value's meaning. transformers: `models/mistral/modeling_mistral.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import USUAL_MODULES, USUAL_SEQUENCE, USUAL_SETTINGS, USUAL_SIZES

MISTRAL = Family(
    name="mistral",
    architectures=("MistralForCausalLM",),
    checkpoints=(
        "mistralai/Mistral-7B-v0.1",
        "mistralai/Mistral-7B-v0.3",
        "mistralai/Mistral-7B-Instruct-v0.1",
        "mistralai/Mistral-7B-Instruct-v0.2",
        "mistralai/Mistral-7B-Instruct-v0.3",
        "mistralai/Mistral-Nemo-Base-2407",
        "mistralai/Mistral-Nemo-Instruct-2407",
        "mistralai/Mistral-Small-24B-Base-2501",
        "HuggingFaceH4/zephyr-7b-beta",
    ),
    modules=USUAL_MODULES,
    sizes=USUAL_SIZES,
    values=USUAL_SEQUENCE,
    unavailable={},
    stream=("layer_input", "attention_output", "mlp_output"),
    settings=USUAL_SETTINGS | {"sliding_window"},
)
