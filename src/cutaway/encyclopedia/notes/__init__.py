"""The notes of each family, in the order in which its page tells them."""

from __future__ import annotations

from cutaway.encyclopedia.note import Note
from cutaway.encyclopedia.notes import (
    bloom,
    deepseek_v3,
    falcon,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    llama,
    mamba2,
    mistral,
    mixtral,
    olmo2,
    opt,
    phi3,
    phi_attention,
    phi_block,
    phi_checkpoints,
    phi_float16,
    phi_stream,
    phi_tokens,
    qwen2,
    qwen3,
    qwen3_moe,
    qwen3_next,
    smollm3,
    stablelm,
)
from cutaway.errors import InputError

_NOTES: dict[str, tuple[Note, ...]] = {
    "phi": (
        phi_block.one_norm,
        phi_block.sum_order,
        phi_block.no_path_inside_a_block,
        phi_block.biases_everywhere,
        phi_block.dropout_is_idle,
        phi_attention.partial_rotary,
        phi_attention.pairs_half_apart,
        phi_attention.query_key_norm,
        phi_attention.one_softmax,
        phi_float16.float16_under_eager,
        phi_stream.position_zero,
        phi_stream.constant_lens,
        phi_stream.induction_head,
        phi_tokens.padded_vocabulary,
        phi_tokens.runs_of_spaces,
        phi_checkpoints.three_checkpoints,
    ),
    "llama": (llama.sequential, llama.grouped_heads, llama.gated_mlp, llama.rms_norm, llama.no_biases),
    "gpt2": (gpt2.positions_added_once, gpt2.fused_projection, gpt2.tied_head, gpt2.transposed_weights, gpt2.sum_order),
    "gpt_neox": (
        gpt_neox.two_norms,
        gpt_neox.sum_order,
        gpt_neox.interleaved_projection,
        gpt_neox.quarter_rotary,
        gpt_neox.sequential_variant,
    ),
    "qwen2": (
        qwen2.three_biases,
        qwen2.bias_of_distance,
        qwen2.windows_from_a_layer,
        qwen2.beyond_the_window,
        qwen2.small_cache,
        qwen2.slow_rotary,
    ),
    "qwen3": (
        qwen3.normed_heads,
        qwen3.bounded_scores,
        qwen3.values_grow,
        qwen3.wide_heads,
        qwen3.no_biases,
        qwen3.one_gain_for_all,
    ),
    "mistral": (
        mistral.every_layer_windowed,
        mistral.reach_grows,
        mistral.rolling_cache,
        mistral.llamas_block,
        mistral.nemos_heads,
        mistral.window_given_up,
    ),
    "mixtral": (
        mixtral.chosen_experts,
        mixtral.weights_of_the_chosen,
        mixtral.sum_of_experts,
        mixtral.sent_elsewhere,
        mixtral.resting_parameters,
        mixtral.no_neurons,
    ),
    "qwen3_moe": (
        qwen3_moe.softmax_first,
        qwen3_moe.undivided,
        qwen3_moe.many_mixtures,
        qwen3_moe.layers_of_two_kinds,
        qwen3_moe.weight_scales_its_expert,
        qwen3_moe.router_is_linear,
    ),
    "gpt_oss": (
        gpt_oss.sinks,
        gpt_oss.sink_is_a_parameter,
        gpt_oss.quiet_heads,
        gpt_oss.alternating_windows,
        gpt_oss.router,
        gpt_oss.clamped_experts,
    ),
    "deepseek_v3": (
        deepseek_v3.latent,
        deepseek_v3.shared_turning_part,
        deepseek_v3.two_widths,
        deepseek_v3.edit_of_the_latent,
        deepseek_v3.shared_expert,
        deepseek_v3.choice_and_weight,
        deepseek_v3.first_layers_are_dense,
    ),
    "mamba2": (
        mamba2.one_mixer,
        mamba2.reaches_forward_alone,
        mamba2.constant_state,
        mamba2.two_ways_to_run,
        mamba2.gate,
        mamba2.stream_in_float32,
        mamba2.forgetting,
    ),
    "qwen3_next": (
        qwen3_next.three_to_one,
        qwen3_next.one_sum,
        qwen3_next.gated_attention,
        qwen3_next.constant_state,
        qwen3_next.gated_shared_expert,
        qwen3_next.one_plus_weight,
        qwen3_next.partial_turn,
    ),
    "gemma2": (
        gemma2.sandwich,
        gemma2.length_is_the_norms,
        gemma2.one_plus_weight,
        gemma2.capped_scores,
        gemma2.capped_logits,
        gemma2.alternating_windows,
        gemma2.scaled_embedding,
    ),
    "gemma3": (
        gemma3.norms_for_the_cap,
        gemma3.two_rotaries,
        gemma3.few_see_all,
        gemma3.one_plus_weight,
        gemma3.scale_of_scores,
        gemma3.two_places_of_a_sublayer,
    ),
    "olmo2": (
        olmo2.read_as_it_is,
        olmo2.length_is_read,
        olmo2.norm_over_all_heads,
        olmo2.heads_compete,
        olmo2.length_of_the_written,
        olmo2.stream_is_a_sum,
    ),
    "granite": (
        granite.scaled_residual,
        granite.enlarged_embedding,
        granite.scale_of_scores,
        granite.divided_logits,
        granite.llama_at_one,
        granite.edits_and_the_factor,
    ),
    "smollm3": (
        smollm3.layers_without_rotary,
        smollm3.order_is_not_seen,
        smollm3.two_kinds,
        smollm3.nothing_in_the_weights,
        smollm3.only_distances,
        smollm3.window_of_the_still,
    ),
    "phi3": (
        phi3.three_in_one,
        phi3.fused_gate,
        phi3.weights_by_name,
        phi3.partial_turn,
        phi3.long_rope,
        phi3.llamas_block,
    ),
    "stablelm": (
        stablelm.layer_norm,
        stablelm.partial_turn,
        stablelm.contents_alone,
        stablelm.parallel_variant,
        stablelm.order_of_the_sum,
        stablelm.optional_biases,
    ),
    "falcon": (
        falcon.one_key_head,
        falcon.sum_order,
        falcon.side_by_side,
        falcon.eager_to_look_inside,
        falcon.fused_by_group,
        falcon.three_wirings,
    ),
    "bloom": (
        bloom.slopes,
        bloom.same_slopes_everywhere,
        bloom.normed_embedding,
        bloom.sublayers_add,
        bloom.tied_head,
        bloom.padding_and_slopes,
    ),
    "opt": (
        opt.rows_of_positions,
        opt.positions_from_the_mask,
        opt.early_scale,
        opt.spread_mlp,
        opt.relu_neurons,
        opt.the_odd_one,
    ),
    "gptj": (
        gptj.one_norm,
        gptj.sum_order,
        gptj.neighbouring_pairs,
        gptj.partial_turn,
        gptj.where_biases_are,
        gptj.float32_scores,
    ),
}


def add_notes(family: str, *notes: Note) -> None:
    """Adds notes to a family's, for as long as the process lasts: `cutaway notes` runs them, and its page tells them.

    Raises:
        InputError: the family has a note of this name.
    """
    known = {note.name for note in notes_of(family)}
    twice = [note.name for note in notes if note.name in known]
    if twice:
        raise InputError(f"the family '{family}' has a note '{twice[0]}' already.")
    _NOTES[family] = (*notes_of(family), *notes)


def notes_of(family: str) -> tuple[Note, ...]:
    """The notes of a family, by its name; none where nobody has written one yet."""
    return _NOTES.get(family, ())
