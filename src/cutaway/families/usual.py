"""What most families have in common: the names of modules, the config's keys, and the sites.

Sites are written in the standard names of modules, so a family's own names do not show in them. A family file takes
over what holds and states what differs.
"""

from collections.abc import Mapping

from cutaway.sites import (
    Site,
    attention_argument,
    attention_result,
    input_of,
    output_of,
    pattern,
    softmax_input,
    stream_at,
)
from cutaway.vocabulary import Host

USUAL_MODULES: Mapping[Host, Mapping[str, str]] = {
    "model": {
        "embed_tokens": "model.embed_tokens",
        "layers": "model.layers",
        "norm": "model.norm",
        "lm_head": "lm_head",
    },
    "layer": {
        "input_layernorm": "input_layernorm",
        "self_attn": "self_attn",
        "post_attention_layernorm": "post_attention_layernorm",
        "mlp": "mlp",
    },
    "attention": {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "o_proj"},
    "mlp": {"gate_proj": "gate_proj", "up_proj": "up_proj", "act_fn": "act_fn", "down_proj": "down_proj"},
}
"""Llama's names, which are the standard ones, and those of all that is built after it."""

USUAL_SIZES: Mapping[str, str] = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "intermediate_size": "intermediate_size",
}
"""The config's keys; a key that a config lacks follows from the others."""

USUAL_SETTINGS = frozenset(
    {
        "attention_dropout",
        "hidden_act",
        "initializer_range",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_parameters",
        "tie_word_embeddings",
    }
)
"""Settings under which every value is what it is without: dropout acts in training alone and after the pattern is
shown; every type of rotary changes cosines and sines; a tied head is the same module's product."""

USUAL_SITES: Mapping[str, Site] = {
    "input_ids": input_of(argument="input_ids"),
    "attention_mask": input_of(argument="attention_mask", is_first=False),
    "token_embeddings": output_of("embed_tokens"),
    "layer_input": input_of(),
    "attention_norm_output": output_of("input_layernorm"),
    "attention_queries": attention_argument("query"),
    "attention_keys": attention_argument("key"),
    "attention_values": attention_argument("value"),
    "attention_scores": softmax_input(),
    "attention_probabilities": pattern(),
    "attention_head_outputs": attention_result(),
    "attention_premix": input_of("o_proj", argument="input", split=("num_heads", "head_dim")),
    "attention_output": output_of(),
    "mlp_norm_output": output_of("post_attention_layernorm"),
    "mlp_input": input_of("mlp"),
    "mlp_activation": output_of("act_fn"),
    "mlp_neurons": input_of("down_proj", argument="input"),
    "mlp_output": output_of(),
    "layer_output": output_of(),
    "final_norm_output": output_of("norm"),
    "lm_head_output": output_of("lm_head"),
    "logits": output_of(key="logits"),
}
"""All values but `layer_mid` and the derived ones."""

UNROTATED: Mapping[str, Site] = {
    "queries_before_rotary": output_of("q_proj", split=("num_heads", "qk_head_dim"), swapped=True),
    "keys_before_rotary": output_of("k_proj", split=("num_kv_heads", "qk_head_dim"), swapped=True),
}
"""Queries and keys where the rotary is given what the projections return, head beside head."""

USUAL_SEQUENCE: Mapping[str, Site] = {
    **USUAL_SITES,
    **UNROTATED,
    "layer_mid": stream_at("post_attention_layernorm"),
    "mlp_input": input_of("mlp", argument="x"),
}
"""The sites of a block with a rotary in which the MLP reads what the attention added, and calls its input `x`."""

EXPERT_MODULES: Mapping[str, str] = {"router": "gate", "experts": "experts"}
"""A mixture of experts in the names that most of them bear."""

EXPERT_SITES: Mapping[str, Site] = {
    "mlp_input": input_of("mlp"),
    "router_logits": output_of("router", rows=True),
    "expert_weights": output_of("router", key=1, rows=True),
    "expert_indices": output_of("router", key=2, rows=True),
    "routed_output": output_of("experts", rows=True),
}
"""The sites of a mixture of experts whose router returns logits, weights and indices, a row for each token."""

_FUSED = (
    "This MLP is a mixture of experts: each token goes through neurons of several, and one module multiplies by all of "
    "them, expert by expert or in one fused product, so that no tensor has {} of a token's experts."
)
NO_NEURONS: Mapping[str, str] = {
    "mlp_activation": _FUSED.format("the activations"),
    "mlp_neurons": _FUSED.format("the neurons"),
}
"""Why a mixture of experts has no neurons by name."""

EXPERT_SETTINGS = frozenset({"num_local_experts", "output_router_logits", "router_aux_loss_coef"})
"""Settings of experts under which every value is what it is without: what is returned beside logits, and a loss."""
