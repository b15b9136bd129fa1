"""What hangs on each host, declared for whoever reads the code without running it: editors, type checkers, completers.

Where it runs, a host has these names from the vocabulary, as far as its model has them; a test holds the two together.
A value is a tensor that has torch's methods and `save`, and no class of torch says so: hence `Any`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cutaway.model.modules import ModuleHost


class ModelNames:
    """The names of the model."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    qk_head_dim: int
    vocab_size: int
    intermediate_size: int
    num_experts: int
    experts_per_token: int
    kv_latent_size: int
    mixer_size: int
    conv_size: int
    input_ids: Any
    attention_mask: Any
    input_size: Any
    token_embeddings: Any
    final_norm_output: Any
    lm_head_output: Any
    logits: Any
    next_token_probs: Any
    W_E: Tensor
    W_U: Tensor
    b_U: Tensor | None
    embed_tokens: ModuleHost
    norm: ModuleHost
    lm_head: ModuleHost


class LayerNames:
    """The names of a block."""

    layer_input: Any
    attention_norm_output: Any
    mixer_norm_output: Any
    layer_mid: Any
    mlp_norm_output: Any
    mlp_input: Any
    layer_output: Any
    input_layernorm: ModuleHost
    post_attention_layernorm: ModuleHost


class AttentionNames:
    """The names of the attention of a block."""

    latent_kv: Any
    queries_before_rotary: Any
    keys_before_rotary: Any
    attention_queries: Any
    attention_keys: Any
    attention_values: Any
    attention_scores: Any
    attention_probabilities: Any
    attention_sinks: Any
    attention_head_outputs: Any
    attention_gate: Any
    attention_premix: Any
    head_contributions: Any
    attention_output: Any
    W_Q: Tensor
    b_Q: Tensor | None
    W_K: Tensor
    b_K: Tensor | None
    W_V: Tensor
    b_V: Tensor | None
    W_O: Tensor
    b_O: Tensor | None
    q_norm: ModuleHost
    k_norm: ModuleHost
    q_proj: ModuleHost
    k_proj: ModuleHost
    v_proj: ModuleHost
    o_proj: ModuleHost


class MixerNames:
    """The names of the token mixer of a block that is no attention."""

    conv_output: Any
    ssm_output: Any
    mixer_output: Any
    in_proj: ModuleHost
    conv1d: ModuleHost
    out_proj: ModuleHost


class MlpNames:
    """The names of the feed-forward network of a block."""

    router_logits: Any
    expert_weights: Any
    expert_indices: Any
    mlp_activation: Any
    mlp_neurons: Any
    routed_output: Any
    shared_expert_output: Any
    mlp_output: Any
    W_gate: Tensor
    b_gate: Tensor | None
    W_in: Tensor
    b_in: Tensor | None
    W_out: Tensor
    b_out: Tensor | None
    router: ModuleHost
    experts: ModuleHost
    shared_expert: ModuleHost
    gate_proj: ModuleHost
    up_proj: ModuleHost
    act_fn: ModuleHost
    down_proj: ModuleHost
