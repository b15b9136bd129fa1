"""Words of other libraries for what has a name here, so that whoever knows them is told ours.

One table for every error that does not know a name. A row holds for the last part of a name: of
`blocks.3.hook_resid_post` that is `hook_resid_post`, and `hook_` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from cutaway.errors import did_you_mean

_LENS, _NNSIGHT, _NNTERP = "TransformerLens", "nnsight", "nnterp"

_ROWS: dict[str, Mapping[str, str]] = {
    _LENS: {
        # values; {layer} is the layer's number, or `*` where none was given
        "embed": "'token_embeddings'",
        "pos_embed": "the position embedding's own module: 'transformer.wpe.output' on GPT-2; a rotary has none",
        "resid_pre": "'layers.{layer}.layer_input'",
        "resid_mid": "'layers.{layer}.layer_mid'",
        "resid_post": "'layers.{layer}.layer_output'",
        "attn_out": "'layers.{layer}.self_attn.attention_output'",
        "mlp_out": "'layers.{layer}.mlp.mlp_output'",
        "mlp_in": "'layers.{layer}.mlp_input'",
        "attn_scores": "'layers.{layer}.self_attn.attention_scores'",
        "pattern": "'layers.{layer}.self_attn.attention_probabilities'",
        "z": "'layers.{layer}.self_attn.attention_head_outputs' [batch seq num_heads head_dim]",
        "q": "'layers.{layer}.self_attn.attention_queries' after the rotary, 'layers.{layer}.self_attn.q_proj.output' "
        "before it",
        "k": "'layers.{layer}.self_attn.attention_keys' after the rotary, 'layers.{layer}.self_attn.k_proj.output' "
        "before it",
        "v": "'layers.{layer}.self_attn.attention_values' [batch num_kv_heads seq head_dim]",
        "rot_q": "'layers.{layer}.self_attn.attention_queries' [batch num_heads seq qk_head_dim]",
        "rot_k": "'layers.{layer}.self_attn.attention_keys' [batch num_kv_heads seq qk_head_dim]",
        "pre": "the input of the activation, 'layers.{layer}.mlp.act_fn.input'",
        "post": "'layers.{layer}.mlp.mlp_neurons'",
        "normalized": "the norm's output: 'layers.{layer}.attention_norm_output', 'layers.{layer}.mlp_norm_output' or "
        "'final_norm_output'",
        "hook_result": "'layers.{layer}.self_attn.head_contributions' [batch seq num_heads hidden_size]",
        # modules and weights
        "blocks": "`model.layers`",
        "attn": "`self_attn`",
        "ln1": "`input_layernorm`",
        "ln2": "`post_attention_layernorm`",
        "ln_final": "`model.norm`, and its output 'final_norm_output'",
        "unembed": "`model.lm_head`, and its output 'lm_head_output'",
        "W_E": "`model.W_E` [vocab_size hidden_size]",
        "W_U": "`model.W_U` [hidden_size vocab_size]; `model.project_on_vocab(stream)` applies the final norm and the "
        "head",
        "W_pos": "the position embedding's own module, such as `model.transformer.wpe.weight` on GPT-2",
        "W_Q": "`model.layers[i].self_attn.W_Q` [num_heads hidden_size qk_head_dim]",
        "W_K": "`model.layers[i].self_attn.W_K` [num_kv_heads hidden_size qk_head_dim]",
        "W_V": "`model.layers[i].self_attn.W_V` [num_kv_heads hidden_size head_dim]",
        "W_O": "`model.layers[i].self_attn.W_O` [num_heads head_dim hidden_size]",
        "W_in": "`model.layers[i].mlp.W_in` [hidden_size intermediate_size]",
        "W_gate": "`model.layers[i].mlp.W_gate` [hidden_size intermediate_size]",
        "W_out": "`model.layers[i].mlp.W_out` [intermediate_size hidden_size]",
        # what is done
        "run_with_cache": "`model.read(prompt, 'layers.*.layer_output', 'logits')`; without names it reads everything",
        "run_with_hooks": "`with model.hooks({'layers.*.layer_output': function}):`",
        "add_hook": "`with model.hooks({name: function}):`, or `model.edited({name: function})` for good",
        "reset_hooks": "not needed: no hook outlives its with-block",
        "hook_dict": "`model.support()`, which lists every value",
        "to_tokens": "`model.tokenizer(text, return_tensors='pt').input_ids`",
        "to_string": "`model.tokenizer.decode(ids)`",
        "to_str_tokens": "`[model.tokenizer.decode(id) for id in model.tokenizer(text).input_ids]`",
        "to_single_token": "`model.tokenizer(text).input_ids`",
        "to_single_str_token": "`model.tokenizer.decode(id)`",
        "cfg": "`model.sizes` under standard names, `model.config` under the family's own",
        "HookedTransformer": "`StandardizedTransformer`",
        "HookedTransformerConfig": "`model.sizes` under standard names, `model.config` under the family's own",
        "ActivationCache": "the mapping that `model.read(prompt, …)` returns",
        "accumulated_resid": "`model.read(prompt, 'layers.*.layer_input', 'layers.-1.layer_output')`",
        "decompose_resid": "`model.read(prompt, 'layer_input', 'attention_output', 'mlp_output')`",
    },
    _NNSIGHT: {
        "invoke": "a list of prompts: `with model.trace([one, other]):`",
        "next": "`for step in run:` in `with model.generate(prompt) as run:`",
        "iter": "`for step in run:` in `with model.generate(prompt) as run:`",
        "all": "`for step in run:` in `with model.generate(prompt) as run:`, or `model.hooks`, which act in every step",
        "session": "not needed: values are plain tensors, and can go from one trace into the next",
        "edit": "`model.edited({name: function})`",
        "stop": "leaving the block: what nothing asks for is not run",
        "cache": "`model.read(prompt, 'layers.*.layer_output', …)`",
        "result": "`run.output`, after the block of `with model.generate(prompt) as run:`",
        "generator": "`run.output`, after the block of `with model.generate(prompt) as run:`",
        "value": "the value itself: it is a plain tensor",
        "barrier": "not needed: the prompts of a batch run in one pass",
        "LanguageModel": "`StandardizedTransformer`",
        "NNsight": "`StandardizedTransformer`",
    },
    _NNTERP: {
        "layers_input": "`model.layers[i].layer_input`, 'layers.{layer}.layer_input'",
        "layers_output": "`model.layers[i].layer_output`, 'layers.{layer}.layer_output'",
        "attentions": "`model.layers[i].self_attn`",
        "attentions_input": "`model.layers[i].attention_norm_output`, 'layers.{layer}.attention_norm_output'",
        "attentions_output": "`model.layers[i].self_attn.attention_output`, "
        "'layers.{layer}.self_attn.attention_output'",
        "mlps": "`model.layers[i].mlp`",
        "mlps_input": "`model.layers[i].mlp_input`, 'layers.{layer}.mlp_input'",
        "mlps_output": "`model.layers[i].mlp.mlp_output`, 'layers.{layer}.mlp.mlp_output'",
        "skip_layer": "`model.layers[i].skip()`",
        "skip_layers": "`for layer in model.layers[2:5]: layer.skip()`",
        "get_topk_closest_tokens": "`model.project_on_vocab(stream).topk(k)`",
        "logit_lens": "`model.project_on_vocab(stream)`",
        "attn_probs_available": "`model.support()['attention_probabilities'].available`",
        "get_token_activations_collection": "`model.read(prompts, 'layers.*.layer_output')`",
    },
}
"""By library, its word and ours. Where two libraries have a word, the first stands."""


def near(
    given: str,
    names: Iterable[str],
    shown: Mapping[str, str] = MappingProxyType({}),
    layer: int | None = None,
) -> str:
    """A sentence, with a space before it, that says what a name is called here, or offers the names nearest to it.

    `shown` says how a name is written in the sentence, where that is not as it is; `layer` is the layer that was asked.
    """
    return elsewhere(given, layer) or did_you_mean(given, names, shown=shown)


def elsewhere(given: str, layer: int | None = None) -> str:
    """A sentence that says what another library's word is here, with a space before it; empty for any other word."""
    *places, last = given.split(".")
    word = last.removeprefix("hook_")
    number = next((part for part in places if re.fullmatch(r"-?\d+", part)), "*" if layer is None else str(layer))
    for library, words in _ROWS.items():
        ours = words.get(word, words.get(last))
        if ours is not None and (library == _LENS or word == last):
            return f" {library}'s `{given}` is here {ours.format(layer=number) if '{layer}' in ours else ours}."
    return ""
