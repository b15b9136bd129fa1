"""Mamba 2: no attention and no MLP; each block is a norm and a recurrence over positions, between two projections.

The mixer's input projection gives a gate, the channels of a short convolution, and the step of each head; the
recurrence reads the channels and keeps a state of `state_size` numbers for each channel of a head. What it gives goes
through a norm that multiplies by the gate. With `residual_in_fp32` the stream is in float32 whatever the weights are.
transformers: `models/mamba2/modeling_mamba2.py`.
"""

from cutaway.families.family import Family
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import input_of, output_of

_NO_ATTENTION = (
    "No block has an attention: tokens are mixed by a recurrence, whose part in the stream is `mixer_output`."
)
_NO_MLP = "No block has an MLP: the mixer widens the stream, and projects back to it, by itself."
CONVOLVED = (
    "The convolution is a function that the mixer calls, with channels before positions, and another one for a new "
    "token beside a cache. `.source` reads it: `layers.0.mixer.source.causal_conv1d_fn_0.output`."
)
_MODEL = ("input_ids", "attention_mask", "token_embeddings", "final_norm_output", "lm_head_output", "logits")

MAMBA2 = Family(
    name="mamba2",
    architectures=("Mamba2ForCausalLM",),
    checkpoints=(
        "AntonV/mamba2-130m-hf",
        "AntonV/mamba2-370m-hf",
        "AntonV/mamba2-780m-hf",
        "AntonV/mamba2-1.3b-hf",
        "AntonV/mamba2-2.7b-hf",
        "mistralai/Mamba-Codestral-7B-v0.1",
    ),
    modules={
        "model": {
            "embed_tokens": "backbone.embeddings",
            "layers": "backbone.layers",
            "norm": "backbone.norm_f",
            "lm_head": "lm_head",
        },
        "layer": {"input_layernorm": "norm", "mixer": "mixer"},
        "mixer": {"in_proj": "in_proj", "out_proj": "out_proj"},
    },
    sizes={
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "vocab_size": "vocab_size",
    },
    values={
        **{name: USUAL_SITES[name] for name in _MODEL},
        "layer_input": input_of(),
        "mixer_norm_output": output_of("input_layernorm"),
        "ssm_output": input_of("norm"),
        "mixer_output": output_of(),
        "layer_output": output_of(),
    },
    unavailable={
        **{name: _NO_ATTENTION for name in USUAL_SITES if name.startswith("attention_") and name not in _MODEL},
        **{name: _NO_MLP for name in USUAL_SITES if name.startswith("mlp_")},
        "conv_output": CONVOLVED,
        "layer_mid": "A block adds to the stream once, so that no stream passes between two parts of it.",
    },
    stream=("layer_input", "mixer_output"),
    settings=frozenset(
        {
            "chunk_size",
            "conv_kernel",
            "expand",
            "head_dim",
            "hidden_act",
            "initializer_range",
            "layer_norm_epsilon",
            "n_groups",
            "num_heads",
            "rescale_prenorm_residual",
            "residual_in_fp32",
            "state_size",
            "tie_word_embeddings",
            "time_step_floor",
            "time_step_limit",
            "time_step_max",
            "time_step_min",
            "time_step_rank",
            "use_bias",
            "use_conv_bias",
        }
    ),
)
