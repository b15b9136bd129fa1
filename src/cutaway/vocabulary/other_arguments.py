"""The arguments of other libraries' calls, and what says the same here, as data."""

from __future__ import annotations

from collections.abc import Mapping

from cutaway.vocabulary.other_words import BAUKIT, LENS, NNSIGHT, NNTERP, PYVENE, TRANSFORMERS

ARGUMENTS: dict[str, Mapping[str, str]] = {
    LENS: {
        "names_filter": "the names that `read` is given: `model.read(prompt, 'layers.*.layer_output')`; they may be "
        "functions of a path",
        "return_type": "the value that is asked for: `model.read(prompt, 'logits')`",
        "remove_batch_dim": "an index, `[0]`, of the value",
        "pos_slice": "`positions=` of `read`",
        "fwd_hooks": "the functions of `with model.hooks({name: function}):`",
        "bwd_hooks": "`with model.trace(prompt, grad=True):`, in which every value has its `.grad`",
        "incl_bwd": "`with model.trace(prompt, grad=True):`, in which every value has its `.grad`",
        "reset_hooks_end": "not needed: no hook outlives its with-block",
        "clear_contexts": "not needed: functions keep what they like in variables of their own",
        "stop_at_layer": "not needed: a pass runs no further than what is asked of it",
        "start_at_layer": "`model.layers[i].skip(stream)` for the layers before it, in a trace",
        "prepend_bos": "the text, or ids, as they are: the tokenizer adds what it adds",
        "padding_side": "a tokenizer's own output, `model.tokenizer(texts, padding=True, return_tensors='pt')`; "
        "strings are padded on the left",
        "past_kv_cache": "`cache=`",
        "past_left_attention_mask": "`attention_mask=`, that of all positions so far",
        "shortformer_pos_embed": "not there: no family here has it",
        "tokens": "the prompt, which comes first",
        "loss_per_token": "not there: compute it of the value 'logits'",
        "stop_at_eos": "`eos_token_id=`, as in transformers",
        "freq_penalty": "`repetition_penalty=`, as in transformers",
        "use_past_kv_cache": "`use_cache=`, as in transformers",
        "verbose": "not needed: nothing is printed",
        "return_labels": "the paths of the mapping that `read` returns",
        # of loading
        "fold_ln": "not there: weights stay those of the checkpoint",
        "center_writing_weights": "not there: weights stay those of the checkpoint",
        "center_unembed": "not there: weights stay those of the checkpoint",
        "fold_value_biases": "not there: weights stay those of the checkpoint",
        "refactor_factored_attn_matrices": "not there: weights stay those of the checkpoint",
        "hf_model": "the model itself, which comes first: `StandardizedTransformer(hf_model)`",
        "n_devices": "`device_map=`",
        "move_to_device": "`device=`",
        "default_prepend_bos": "not needed: the tokenizer adds what it adds",
        "default_padding_side": "not needed: strings are padded on the left, a tokenizer's output as it is",
        "first_n_layers": "`num_hidden_layers=`, or what the family's config calls it",
    },
    NNSIGHT: {
        "remote": "not there: a model runs where it was loaded",
        "blocking": "not there: a model runs where it was loaded",
        "backend": "not there: a model runs where it was loaded",
        "validate": "`model.scan(prompt)`, which finds what would fail for its shape",
        "scan": "`model.scan(prompt)`",
        "invoker_args": "the arguments of `trace` itself",
        "invoker_kwargs": "the arguments of `trace` itself",
        "trace": "`model(ids)`, transformers' own call, where no value is asked for",
        "debug": "not needed: the body is ordinary Python, and a debugger stops in it",
        "rename": "the standard names, which are there already; the family's own serve too",
        "automodel": "not needed: the class is told by the config; another is given as a loaded model",
        "tokenizer_kwargs": "a tokenizer of your own: `tokenizer=AutoTokenizer.from_pretrained(…)`",
    },
    NNTERP: {
        "steering_vector": "`vector`",
        "skip_with": "the argument of `skip`: `model.layers[i].skip(stream)`",
        "get_module": "a name in the place of the layers: `model.steer('layers.*.mlp.mlp_output', vector)`",
        "enable_attention_probs": "not needed: `attention_probabilities` is there under every attention implementation",
        "enable_router_logits": "not needed: `router_logits` is there where the family has a router",
        "check_renaming": "`check=`",
        "check_attn_probs_with_trace": "`check=`",
        "allow_dispatch": "`dispatch=`",
        "rename_config": "a family of your own: `cutaway.families.register(family)`",
        **dict.fromkeys(
            ("attn_rename", "mlp_rename", "ln_final_rename", "lm_head_rename", "model_rename", "layers_rename"),
            "a family of your own: `cutaway.families.register(family)`",
        ),
    },
    PYVENE: {
        "base": "the prompt, which comes first",
        "sources": "a prompt of its own, whose values are read first",
        "unit_locations": "`positions=`",
        "source_representations": "a tensor that the function of `model.hooks({name: function})` returns",
    },
    BAUKIT: {
        "layers": "the names that `read` is given, or the keys of `model.hooks({name: function})`",
        "retain_output": "not needed: a value that is asked for is kept",
        "retain_input": "the value 'layers.*.input'",
        "edit_output": "the functions of `with model.hooks({name: function}):`",
        "stop": "not needed: a pass runs no further than what is asked of it",
    },
    TRANSFORMERS: {
        "text": "the prompt, which comes first",
        "text_inputs": "the prompt, which comes first",
        "names": "the names themselves, behind the prompt: `model.read(prompt, 'logits', 'layers.*.layer_output')`",
        "hooks": "`with model.hooks({name: function}):` around the call",
        "device": "said when the model is opened: `StandardizedTransformer(name, device=…)`",
        "return_full_text": "`text` and `new_text` of what `generate` gives",
        "max_new_tokens": "an argument of `model.generate(prompt, …)`",
        "do_sample": "an argument of `model.generate(prompt, …)`",
        "pretrained_model_name_or_path": "the first argument of `StandardizedTransformer`",
        "model": "the first argument of `StandardizedTransformer`",
        "return_tensors": "an argument of `model.tokenizer(…)`; a prompt is given as it is",
        "padding": "an argument of `model.tokenizer(…)`; a prompt is given as it is",
        "truncation": "an argument of `model.tokenizer(…)`; a prompt is given as it is",
        "max_length": "an argument of `model.tokenizer(…)` or `model.generate(prompt, …)`",
        "add_special_tokens": "an argument of `model.tokenizer(…)`; a prompt is given as it is",
    },
}
"""By library, its argument and ours. Where two libraries have a word, the first stands."""
