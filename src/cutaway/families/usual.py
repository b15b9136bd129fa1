"""The sites that are the same in every family whose modules are named and which calls attention through transformers.

They are written in the standard names of modules, so a family's own names do not show in them. A family file takes
them over and states what differs.
"""

from collections.abc import Mapping

from cutaway.sites import Site, attention_argument, attention_result, input_of, output_of, pattern, softmax_input

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
