"""A tiny random model of each class that transformers maps to causal language modelling, or to text from images.

A class has a default config, of the size of its first checkpoint. It is made small key by key: a key that is called
`hidden_size`, or what some family calls it, becomes 64. What a rule cannot know, which sizes must go together in one
family, is stated for it in `OVERRIDES`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

LAYERS = 4
VOCABULARY = 160
MOST_PARAMETERS = 30_000_000
"""Beyond these a config was not made small, and its model would not be tiny."""

_SIZES: dict[float, str] = {
    64: "hidden_size d_model n_embd emb_dim embedding_dim attention_hidden_size lru_width embedding_size "
    "input_embedding_size output_embedding_size word_embed_proj_dim backbone_hidden_size dim_model_base",
    LAYERS: "num_hidden_layers n_layer n_layers num_layers decoder_layers num_blocks num_decoder_layers "
    "encoder_layers num_encoder_layers "
    # and heads, of which there are as many
    "num_attention_heads n_head n_heads num_heads attention_heads decoder_attention_heads encoder_attention_heads "
    "num_decoder_attention_heads num_encoder_attention_heads linear_num_heads swa_num_attention_heads "
    "linear_num_value_heads num_query_groups hybrid_num_heads "
    # experts, and short reaches, which a prompt of six tokens must exceed
    "num_experts num_local_experts n_routed_experts moe_num_experts "
    "sliding_window window_size attention_window_size local_attention sliding_window_size attention_chunk_size "
    "swa_window_size index_topk index_block_size",
    2: "num_key_value_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads "
    "num_experts_per_tok moe_topk moe_k num_experts_per_token top_k_experts zero_expert_num "
    "n_group num_expert_group topk_group index_n_heads index_topk_blocks index_local_blocks",
    1: "n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace num_dense_layers",
    0: "num_nextn_predict_layers num_mtp_layers num_kv_shared_layers",
    16: "head_dim dim_head d_head attention_head_size kv_channels swa_head_dim linear_key_head_dim "
    "linear_value_head_dim linear_head_dim global_head_dim kv_lora_rank mamba_d_head mamba_head_dim mamba_headdim "
    "hidden_size_per_layer_input laurel_rank altup_rank adapter_rank",
    96: "intermediate_size n_inner ffn_dim ffn_hidden_size d_inner dff dim_ff decoder_ffn_dim encoder_ffn_dim "
    "feed_forward_size intermediate_size_mlp dense_intermediate_size prefix_dense_intermediate_size",
    48: "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size expert_ffn_hidden_size "
    "shared_experts_intermediate_size moe_shared_expert_intermediate_size",
    VOCABULARY: "vocab_size decoder_vocab_size unpadded_vocab_size vocab_size_per_layer_input output_vocab_size",
    256: "max_position_embeddings n_positions n_ctx max_seq_len context_length max_target_positions "
    "model_max_length original_max_position_embeddings",
    24: "q_lora_rank o_lora_rank",
    12: "v_head_dim",
    8: "qk_rope_head_dim qk_nope_head_dim mamba_d_state state_size ssm_state_size mamba_dt_rank time_step_rank "
    "mamba_n_heads mamba_num_heads mamba_chunk_size chunk_size index_head_dim rotary_dim",
    128: "mamba_d_ssm",
    0.3: "initializer_range init_std embed_init_std embedding_initializer_range",
}
SIZE_OF = {key: int(size) if size != 0.3 else size for size, keys in _SIZES.items() for key in keys.split()}
"""What each config key becomes. Weights are large, so that what differs shows."""

_OF_EACH_TOKEN = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_TOKENS = {
    *_OF_EACH_TOKEN,
    "sep_token_id",
    "cls_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "forced_eos_token_id",
    "eod_token_id",
}
_AS_THEY_ARE = {"mlp_multipliers"}
"""Lists that have as many items as there are layers by chance."""

_ABSENT = ...
"""In `OVERRIDES`, for a key that is to be left at its default."""


def _by_turns(one: str, other: str) -> list[str]:
    return [one, other] * (LAYERS // 2)


_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_THREE_AXES: dict[str, Any] = {"text_config": {"rope_parameters": {**_ROPE, "mrope_section": [4, 2, 2]}}}
"""A rotary over time, height and width, which share half of a head's width."""

_GLM_4V: dict[str, Any] = {**_THREE_AXES, "vision_config": {"depth": 2, "out_hidden_size": 64}}
_QWEN4 = {
    "indexer_n_heads": 2,
    "indexer_head_dim": 16,
    "indexer_kv_heads": 1,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
    "layer_types": _by_turns("linear_attention", "indexed_attention"),
    "hc_lowrank": 16,
    "ple_embed_dim": 64,
    "ngram_vocab_size_base": 200,
    "split_ngram_parts": 2,
}
OVERRIDES: dict[str, dict[str, Any]] = {
    "axk1": {"head_dim": 8},
    "bamba": {"attn_layer_indices": [1, 3], "mamba_n_heads": 8, "mamba_d_head": 16},
    "blt": {"encoder_hash_byte_group_vocab": 50, "encoder_hash_byte_group_size": [3, 4]},
    "cohere_compass_text": {
        "layer_types": _by_turns("full_attention", "sliding_attention"),
        "rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE},
    },
    "cosmos3_edge": _THREE_AXES,
    "dbrx": {
        "attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": 64, "ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v2": {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "deepseek_v3": {"head_dim": 8},
    "dory": {"n_input_layers": 1, "n_output_layers": 1, "n_recurrent_layers": 2, "n_recurrent_loops": 2},
    "dots1": {
        "layer_types": _by_turns("full_attention", "sliding_attention"),
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
    },
    "dots3_note": {"audio_config": _ABSENT, "vision_config": _ABSENT},
    "dots3_note_text": {
        "num_key_value_heads": 4,
        "hidden_size": 64,
        "head_dim": 16,
        "layer_types": _by_turns("indexed_attention", "sliding_attention"),
    },
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input": 0},
    "exaone4_5": {"text_config": {"model_type": "exaone4_5_text"}},
    "glm46v": _GLM_4V,
    "glm4v": _GLM_4V,
    "glm4v_moe": {**_GLM_4V, "text_config": {"rope_parameters": {**_ROPE, "mrope_section": [2, 1, 1]}}},
    "glm_ocr": _GLM_4V,
    "granite_docling": {"vision_config": {"out_hidden_size": 64}},
    "granitemoehybrid": {"layer_types": _by_turns("mamba", "attention"), "layers_block_type": _ABSENT},
    "hy_v4_vl": {
        "text_config": {"rope_parameters": {**_ROPE, "mrope_section": [2, 1, 1]}},
        "vision_config": {"out_hidden_size": 64},
    },
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "inkling2": {"vision_config": {"text_hidden_size": 64}},
    "inkling2_loop": {"vision_config": {"text_hidden_size": 64}},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4},
    "kimi_linear": {"num_key_value_heads": 4},
    "kosmos-2.5": {"text_config": {"embed_dim": 64, "layers": LAYERS}},
    "lfm2": {"layer_types": _by_turns("conv", "full_attention"), "full_attn_idxs": _ABSENT},
    "lfm2_moe": {"layer_types": _by_turns("conv", "full_attention"), "num_dense_layers": 1},
    "longcat_flash": {"head_dim": 8, "num_layers": 2, "num_hidden_layers": _ABSENT},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 8},
    "ministral": {"head_dim": 16},
    "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "paddleocr_vl": _THREE_AXES,
    "qwen2_5_omni_thinker": {**_THREE_AXES, "vision_start_token_id": 150},
    "qwen2_5_vl": {**_THREE_AXES, "vision_config": {"depth": 2, "out_hidden_size": 64}},
    "qwen2_vl": {**_THREE_AXES, "vision_config": {"depth": 2, "embed_dim": 64}},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 150},
    "qwen4_exp": {"text_config": _QWEN4},
    "qwen4_exp_text": _QWEN4,
    "reformer": {
        "attn_layers": _by_turns("local", "lsh"),
        "axial_pos_shape": (4, 8),
        "axial_pos_embds_dim": (16, 48),
        "max_position_embeddings": 256,
        "lsh_attn_chunk_length": 4,
        "local_attn_chunk_length": 4,
        "num_buckets": 2,
        "hash_seed": 0,
    },
    "xlstm": {
        "num_heads": 4,
        "embedding_dim": 64,
        "qk_dim_factor": 1.0,
        "chunk_size": 64,
        "mode": "inference",
        "chunkwise_kernel": "chunkwise--native_autograd",
        "return_last_states": True,
    },
    "xmod": {"default_language": "en_XX"},
    "youtu": {"head_dim": 8},
    "zamba": {
        "layers_block_type": _by_turns("mamba", "hybrid"),
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
        "mamba_dt_rank": 4,
        "n_mamba_heads": 2,
    },
    "zamba2": {
        "layers_block_type": _by_turns("mamba", "hybrid"),
        "hybrid_layer_ids": [1, 3],
        "num_mem_blocks": 1,
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
        "num_key_value_heads": 4,
        "kv_channels": _ABSENT,
    },
    "zaya": {"num_experts_per_tok": 1},
}
"""What a model type's config has in the place of what the rules make of it."""


@dataclass(frozen=True)
class Case:
    """A class to be built: its name, the model type of its config, and whether it reads images too."""

    model_type: str
    architecture: str
    images: bool = False

    @property
    def name(self) -> str:
        """What the case is called by: its model type, of which it is the only class of its mapping."""
        return f"{self.model_type}:images" if self.images else self.model_type


def cases(*, images: bool = False) -> list[Case]:
    """A case for each class of the causal mapping, and with `images` for each other one that makes text of images.

    A class that stands under several model types is taken under the one that it is called by, or else the first.
    """
    tables = [(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, False), (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, True)]
    found: dict[str, Case] = {}
    for table, reads_images in tables[: 1 + images]:
        here: dict[str, Case] = {}
        for model_type, architecture in table.items():
            if architecture not in here or _is_called(model_type, architecture):
                here[architecture] = Case(model_type, architecture, reads_images)
        found = {**here, **found}
    return sorted(found.values(), key=lambda case: (case.images, case.architecture.lower()))


def _is_called(model_type: str, architecture: str) -> bool:
    words = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
    return model_type in {architecture.removesuffix(word).lower() for word in words}


def case(name: str) -> Case:
    """The case of a name."""
    return next(case for case in cases(images=True) if case.name == name)


def config(model_type: str) -> PretrainedConfig:
    """The config of a model type, made small."""
    kind = CONFIG_MAPPING[model_type]
    return kind(**_merged(_small(kind()), copy.deepcopy(OVERRIDES.get(model_type, {}))))


def _small(full: PretrainedConfig) -> dict[str, Any]:
    """What of a default config becomes another value; a config inside it is made small likewise."""
    settings = {key: value for key, value in vars(full).items() if not key.startswith("_")}
    layers = _number_of_layers(settings)
    small = dict(_changes(settings, layers))
    latent = settings.get("kv_lora_rank")
    if isinstance(latent, int) and "num_key_value_heads" in small:
        small["num_key_value_heads"] = SIZE_OF["num_attention_heads"]  # keys are expanded for every head
    if isinstance(latent, int) and settings.get("head_dim") == settings.get("qk_rope_head_dim"):
        small["head_dim"] = small["qk_rope_head_dim"]
    if settings.get("is_decoder") is False:
        small["is_decoder"] = True
    return small


def _changes(settings: dict[str, Any], layers: int | None) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if isinstance(value, PretrainedConfig):
            yield key, _small(type(value)())
        elif key in SIZE_OF and is_number:
            yield key, SIZE_OF[key]
        elif isinstance(value, (list, tuple)) and layers and len(value) == layers and key not in _AS_THEY_ARE:
            yield key, _shortened(value)
        elif key in _TOKENS and value is not None:
            yield key, [1] if isinstance(value, list) else _OF_EACH_TOKEN.get(key, 3)
        elif key.endswith(("_token_id", "_token_index")) and isinstance(value, int):
            yield key, min(value, VOCABULARY - 20 + len(key) % 15)  # near the end, and not all one


def _number_of_layers(settings: dict[str, Any]) -> int | None:
    keys = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    return next((settings[key] for key in keys if isinstance(settings.get(key), int)), None)


def _shortened(each: Sequence[Any]) -> list[Any]:
    """A list with an item for each layer, shortened so that every kind of layer is in it."""
    kinds = {str(item): item for item in reversed(each)}
    first = [kinds[kind] for kind in dict.fromkeys(map(str, each))]
    if len(first) == 1:
        return list(each[:LAYERS])
    return [first[number % len(first)] for number in range(max(LAYERS, len(first)))]


def _merged(small: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    for key, value in stated.items():
        if value is _ABSENT:
            small.pop(key, None)
        elif isinstance(value, dict) and isinstance(small.get(key), dict):
            _merged(small[key], value)
        else:
            small[key] = value
    return small


def build(
    case: Case, attention: str | None = None, dtype: torch.dtype = torch.float32, seed: int = 0
) -> PreTrainedModel:
    """The model of a case in `eval` mode, the same at each call.

    Raises:
        MemoryError: its config was not made small.
    """
    kind = getattr(transformers, case.architecture)
    own = config(case.model_type)
    if not isinstance(own, kind.config_class):
        own = next((part for part in vars(own).values() if isinstance(part, kind.config_class)), own)
    options = {"attn_implementation": attention} if attention else {}
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in kind._from_config(copy.deepcopy(own), **options).parameters())
    if count > MOST_PARAMETERS:
        raise MemoryError(f"its config was not made small: {count / 1e6:.0f} million parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf = kind._from_config(own, dtype=torch.float32, **options)
        with torch.no_grad():
            for parameter in hf.parameters():
                _unsettle(parameter)
    return hf.to(dtype).eval()


def _unsettle(parameter: torch.Tensor) -> None:
    """Gives a weight that no initialisation touches, or that is all zeros or ones, numbers in which a fault shows."""
    if parameter.numel() and not bool(parameter.isfinite().all()):
        parameter.normal_(0, 0.3)
    elif bool((parameter == 0).all()):
        parameter.normal_(0, 0.2 if parameter.ndim == 1 else 0.3)
    elif parameter.ndim == 1 and bool((parameter == 1).all()):
        parameter.normal_(1, 0.2)
