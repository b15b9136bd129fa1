"""Phi's sizes and choices, read from a `config.json`.

Every key of the config has to be one that the reference has considered: it uses it, or knows that it does not bear on
the forward pass. Another one is refused by name, since it may change the model in a way this code does not follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.errors import LoadError, UnsupportedModelError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_USED = _words(
    """
    model_type architectures vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
    num_key_value_heads head_dim hidden_act max_position_embeddings initializer_range layer_norm_eps tie_word_embeddings
    rope_parameters rope_theta rope_scaling partial_rotary_factor qk_layernorm bos_token_id eos_token_id pad_token_id
    is_encoder_decoder add_cross_attention chunk_size_feed_forward pruned_heads
    """
)
"""Keys that `PhiConfig.from_dict` reads or checks."""

_TRAINING_AND_OUTPUTS = _words(
    """
    attention_dropout resid_pdrop embd_pdrop use_cache output_attentions output_hidden_states return_dict torchscript
    id2label label2id problem_type
    """
)
_ORIGIN = _words(
    """
    _name_or_path name_or_path _commit_hash transformers_version dtype torch_dtype use_bfloat16 auto_map tokenizer_class
    prefix attn_implementation _attn_implementation _attn_implementation_internal tf_legacy_loss is_decoder
    cross_attention_hidden_size tie_encoder_decoder finetuning_task task_specific_params
    """
)
_GENERATION = _words(
    """
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty
    suppress_tokens begin_suppress_tokens sep_token_id decoder_start_token_id output_scores return_dict_in_generate
    """
)
_WITHOUT_EFFECT = _TRAINING_AND_OUTPUTS | _ORIGIN | _GENERATION
"""Keys that a Phi config may hold and that change nothing in the forward pass."""


@dataclass(frozen=True)
class PhiConfig:
    """Sizes under their standard names, and Phi's choices; the defaults are those of transformers' `PhiConfig`.

    Attributes:
        num_layers: blocks.
        hidden_size: width of the residual stream.
        num_heads: query heads in a block.
        num_kv_heads: key and value heads in a block.
        head_dim: width of a head.
        vocab_size: rows of the embedding, padding included.
        intermediate_size: neurons in a block's MLP.
        rotary_dim: how many of a head's dimensions are rotated: `int(head_dim * partial_rotary_factor)`.
        rope_theta: base of the rotary's frequencies.
        max_position_embeddings: the context the model was trained with. Longer inputs run.
        layer_norm_eps: epsilon of every norm.
        qk_layernorm: a norm over each query and key head before the rotary.
        tie_word_embeddings: the head's weight is the embedding's.
        initializer_range: standard deviation of random weights.
        bos_token_id: id of the token that begins a text; the tokenizer does not add it.
        eos_token_id: id or ids that end a text.
        pad_token_id: id that fills ended rows.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    intermediate_size: int
    rotary_dim: int
    rope_theta: float = 10000.0
    max_position_embeddings: int = 2048
    layer_norm_eps: float = 1e-5
    qk_layernorm: bool = False
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    bos_token_id: int | None = None
    eos_token_id: int | Sequence[int] | None = None
    pad_token_id: int | None = None

    @property
    def qk_head_dim(self) -> int:
        """Width of a head's queries and keys; on Phi that of its values."""
        return self.head_dim

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> PhiConfig:
        """Read the mapping that a `config.json` holds, in transformers' present form or in the older one.

        Args:
            config: native keys (`num_hidden_layers`, …). `num_key_value_heads` and `head_dim` may be left out or null;
                the rope parameters stand under `rope_parameters` or, in older files, beside the others.

        Raises:
            UnsupportedModelError: not a `PhiForCausalLM`, a key that is not known, one that is missing, or one with a
                value that the reference does not follow; the message names it.
            LoadError: a size that is no positive whole number, or another value of the wrong kind; likewise.
        """
        _check_architecture(config)
        unknown = sorted(set(config) - _USED - _WITHOUT_EFFECT)
        if unknown:
            raise UnsupportedModelError(
                f"the config sets {', '.join(f'`{key}`' for key in unknown)}, which the Phi reference does not know; "
                "it may change the model, so it is not ignored. Remove it if it does not"
            )
        _check_settings(config)
        hidden_size, num_heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
        num_kv_heads = _size(config, "num_key_value_heads", num_heads)
        head_dim = _size(config, "head_dim", hidden_size // num_heads)
        qk_layernorm = bool(config.get("qk_layernorm", False))
        if num_heads % num_kv_heads:
            raise UnsupportedModelError(
                f"`num_attention_heads` {num_heads} cannot share `num_key_value_heads` {num_kv_heads} evenly"
            )
        if config.get("head_dim") is None and hidden_size % num_heads:
            raise UnsupportedModelError(f"`hidden_size` {hidden_size} is not `num_attention_heads` {num_heads} heads")
        if qk_layernorm and head_dim != hidden_size // num_heads:
            raise UnsupportedModelError(
                f"`qk_layernorm` with `head_dim` {head_dim}: its norm is made for {hidden_size // num_heads} dimensions"
            )
        rotary_dim, rope_theta = _rope(config, head_dim)
        return cls(
            num_layers=_size(config, "num_hidden_layers"),
            hidden_size=hidden_size,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            vocab_size=_size(config, "vocab_size"),
            intermediate_size=_size(config, "intermediate_size"),
            rotary_dim=rotary_dim,
            rope_theta=rope_theta,
            max_position_embeddings=_size(config, "max_position_embeddings", 2048),
            layer_norm_eps=_number(config, "layer_norm_eps", 1e-5),
            qk_layernorm=qk_layernorm,
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            initializer_range=_number(config, "initializer_range", 0.02),
            bos_token_id=config.get("bos_token_id"),
            eos_token_id=config.get("eos_token_id"),
            pad_token_id=config.get("pad_token_id"),
        )


def _check_architecture(config: Mapping[str, Any]) -> None:
    model_type, architectures = config.get("model_type"), config.get("architectures")
    if model_type != "phi":
        said = f"`model_type` is {model_type!r}" if model_type else "the config has no `model_type`"
        raise UnsupportedModelError(
            f"{said}; the reference is Phi alone (`phi`: phi-1, phi-1.5, phi-2), not Phi-3 or another family"
        )
    if architectures is not None and not isinstance(architectures, (list, tuple)):
        raise LoadError(f"`architectures` is {architectures!r}; it is to be a list of class names")
    if architectures and "PhiForCausalLM" not in architectures:
        raise UnsupportedModelError(f"`architectures` is {list(architectures)}; the reference is `PhiForCausalLM`")


def _check_settings(config: Mapping[str, Any]) -> None:
    """Refuse the settings that have one value the reference follows and hold another."""
    only: dict[str, tuple[Any, ...]] = {
        "hidden_act": ("gelu_new",),
        "is_encoder_decoder": (False, None),
        "add_cross_attention": (False, None),
        "chunk_size_feed_forward": (0, None),
        "pruned_heads": ({}, None),
        "rope_scaling": (None, {}),
    }
    for key, allowed in only.items():
        if config.get(key, allowed[0]) in allowed:
            continue
        if key == "rope_scaling" and _rope_type(config[key]) == "default":
            continue
        raise UnsupportedModelError(f"`{key}` is {config[key]!r}; the Phi reference follows {allowed[0]!r} only")


def _rope(config: Mapping[str, Any], head_dim: int) -> tuple[int, float]:
    """The rotary dimension and the base."""
    parameters: Mapping[str, Any] = config.get("rope_parameters") or {}
    if not isinstance(parameters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # what a file holds
        raise LoadError(f"`rope_parameters` is {parameters!r}; it is to be an object")
    if _rope_type(parameters) != "default":
        raise UnsupportedModelError(
            f"`rope_parameters` has `rope_type` {_rope_type(parameters)!r}; the Phi reference follows 'default' only"
        )
    unknown = sorted(set(parameters) - {"rope_type", "type", "rope_theta", "partial_rotary_factor"})
    if unknown:
        raise UnsupportedModelError(
            f"`rope_parameters` sets {', '.join(f'`{key}`' for key in unknown)}, which the Phi reference does not know"
        )
    given = {**config, **parameters}
    factor = _number(given, "partial_rotary_factor", 0.5)
    rope_theta = _number(given, "rope_theta", 10000.0)
    rotary_dim = int(head_dim * factor)
    if rotary_dim % 2 or not 2 <= rotary_dim <= head_dim:
        raise UnsupportedModelError(
            f"`partial_rotary_factor` {factor} of a head of {head_dim} makes {rotary_dim} rotary dimensions; "
            "they are rotated in pairs, so their number must be even, positive and at most the head's"
        )
    return rotary_dim, rope_theta


def _rope_type(parameters: Mapping[str, Any]) -> str:
    return parameters.get("rope_type", parameters.get("type", "default"))


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise UnsupportedModelError(f"the config does not say `{key}`")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LoadError(f"`{key}` is {value!r}; it is to be a positive whole number")
    return value


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise LoadError(f"`{key}` is {value!r}; it is to be a number")
    return float(value)
