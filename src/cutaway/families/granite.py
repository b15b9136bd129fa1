"""Granite: Llama's block, with four numbers of the config that multiply what Llama adds as it is.

`residual_multiplier` multiplies what each sublayer returns as it is added to the stream: `attention_output` and
`mlp_output` are what the sublayers return, and the stream gains them times that number. `embedding_multiplier`
multiplies the embedding's rows on their way into the first block, `attention_multiplier` stands in the place of the
root of a head's width, and logits are the head's product over `logits_scaling`.
transformers: `models/granite/modeling_granite.py`.
"""

from cutaway.families.family import Family
from cutaway.families.llama import LLAMA
from cutaway.families.stream import times

GRANITE = Family(
    name="granite",
    architectures=("GraniteForCausalLM",),
    checkpoints=(
        "ibm-granite/granite-3.0-2b-base",
        "ibm-granite/granite-3.0-8b-base",
        "ibm-granite/granite-3.0-8b-instruct",
        "ibm-granite/granite-3.1-2b-base",
        "ibm-granite/granite-3.1-8b-base",
        "ibm-granite/granite-3.1-8b-instruct",
        "ibm-granite/granite-3.3-2b-base",
        "ibm-granite/granite-3.3-2b-instruct",
        "ibm-granite/granite-3.3-8b-base",
        "ibm-granite/granite-3.3-8b-instruct",
    ),
    modules=LLAMA.modules,
    sizes=LLAMA.sizes,
    values=LLAMA.values,
    unavailable={},
    stream=(
        "layer_input",
        times("attention_output", "residual_multiplier"),
        times("mlp_output", "residual_multiplier"),
    ),
    settings=LLAMA.settings | {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"},
)
