"""The configs that pages are made from: for each family its reference checkpoint first, then others to compare.

Phi's ship with the package as files. Those of the other families are built here in code, under the hub ids of the
checkpoints that have them, so that nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint: its hub id, and for one without a shipped config, what the config says."""

    hub_id: str
    settings: Mapping[str, Any] | None = None

    @property
    def short(self) -> str:
        """The id without its owner."""
        return self.hub_id.rpartition("/")[2]


def _llama(vocab: int, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-5,
        "dtype": "bfloat16",
        **more,
    }


def _long(factor: float) -> dict[str, Any]:
    return {
        "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    }


def _plain_rope(theta: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


def _gpt2(layers: int, width: int, heads: int) -> dict[str, Any]:
    return {"n_layer": layers, "n_embd": width, "n_head": heads, "dtype": "float32"}


def _neox(hidden: int, inner: int, layers: int, heads: int, vocab: int = 50304, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "dtype": "float16",
        **more,
    }


CHECKPOINTS: dict[str, tuple[Checkpoint, ...]] = {
    "phi": (Checkpoint("microsoft/phi-2"), Checkpoint("microsoft/phi-1_5"), Checkpoint("microsoft/phi-1")),
    "llama": (
        Checkpoint("meta-llama/Llama-3.1-8B", _llama(128256, 4096, 14336, 32, 32, 8, **_long(8.0))),
        Checkpoint(
            "meta-llama/Llama-3.2-1B",
            _llama(128256, 2048, 8192, 16, 32, 8, head_dim=64, tie_word_embeddings=True, **_long(32.0)),
        ),
        Checkpoint(
            "meta-llama/Llama-2-7b-hf",
            _llama(32000, 4096, 11008, 32, 32, 32, max_position_embeddings=4096, **_plain_rope(10000.0)),
        ),
        Checkpoint(
            "HuggingFaceTB/SmolLM2-135M",
            _llama(
                49152,
                576,
                1536,
                30,
                9,
                3,
                max_position_embeddings=8192,
                tie_word_embeddings=True,
                **_plain_rope(100000.0),
            ),
        ),
    ),
    "gpt2": (
        Checkpoint("openai-community/gpt2", _gpt2(12, 768, 12)),
        Checkpoint("openai-community/gpt2-medium", _gpt2(24, 1024, 16)),
        Checkpoint("openai-community/gpt2-large", _gpt2(36, 1280, 20)),
        Checkpoint("openai-community/gpt2-xl", _gpt2(48, 1600, 25)),
    ),
    "gpt_neox": (
        Checkpoint("EleutherAI/pythia-1.4b", _neox(2048, 8192, 24, 16)),
        Checkpoint("EleutherAI/pythia-70m", _neox(512, 2048, 6, 8)),
        Checkpoint("EleutherAI/pythia-410m", _neox(1024, 4096, 24, 16)),
        Checkpoint("EleutherAI/pythia-6.9b", _neox(4096, 16384, 32, 32, vocab=50432)),
        Checkpoint("EleutherAI/gpt-neox-20b", _neox(6144, 24576, 44, 64, vocab=50432, hidden_act="gelu_fast")),
    ),
}
"""For each family by name its checkpoints, the reference checkpoint first."""


def config_of(family: str, checkpoint: Checkpoint) -> PretrainedConfig:
    """A checkpoint's config, under its hub id; nothing is downloaded."""
    from transformers import AutoConfig

    from cutaway.families import FAMILIES
    from cutaway.subject.source_names import SHIPPED_CONFIGS, data_folder

    if checkpoint.settings is None:
        config = AutoConfig.from_pretrained(str(data_folder(SHIPPED_CONFIGS[checkpoint.hub_id])))
    else:
        import torch

        settings = dict(checkpoint.settings)
        dtype = getattr(torch, settings.pop("dtype"))
        architecture = FAMILIES[family].architectures[0]
        config = _config_class(family)(**settings, dtype=dtype, architectures=[architecture])
    config._name_or_path = checkpoint.hub_id
    return config


def _config_class(family: str) -> Callable[..., PretrainedConfig]:
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[family]
