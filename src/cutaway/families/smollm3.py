"""SmolLM3: Llama's block, in which every fourth layer has no rotary.

`no_rope_layers` has a 1 for each layer that turns its queries and keys, and a 0 for one that does not, where
`attention_queries` and `attention_keys` are what the projections return. `sliding_window` may bound what the layers
without a rotary see, which changes the mask; the published checkpoint has none.
transformers: `models/smollm3/modeling_smollm3.py`.
"""

from cutaway.families.family import Family, Kind
from cutaway.families.llama import LLAMA

_UNTURNED = "This layer has no rotary: {} are never turned."

SMOLLM3 = Family(
    name="smollm3",
    architectures=("SmolLM3ForCausalLM",),
    checkpoints=("HuggingFaceTB/SmolLM3-3B", "HuggingFaceTB/SmolLM3-3B-Base"),
    modules=LLAMA.modules,
    sizes=LLAMA.sizes,
    values=LLAMA.values,
    unavailable={},
    stream=LLAMA.stream,
    kinds=(
        Kind(
            name="no rotary",
            setting="no_rope_layers",
            is_=0,
            unavailable={
                "queries_before_rotary": _UNTURNED.format("`attention_queries`"),
                "keys_before_rotary": _UNTURNED.format("`attention_keys`"),
            },
        ),
    ),
    settings=LLAMA.settings
    | {
        "layer_types",
        "max_window_layers",
        "no_rope_layer_interval",
        "no_rope_layers",
        "sliding_window",
        "use_sliding_window",
    },
)
