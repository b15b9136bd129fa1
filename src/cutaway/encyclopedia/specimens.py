"""The models that notes run on when pages are built: the built-in checkpoint for Phi, and for the others tiny random
models, made so that a fault shows: large weights, biases and norms away from where they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_TINY: dict[str, dict[str, Any]] = {
    "llama": {
        "vocab_size": 96,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    },
    "gpt2": {"vocab_size": 96, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "gpt_neox": {
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    },
}

_COMMON: dict[str, Any] = {
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def specimen_of(family: str) -> tuple[StandardizedTransformer, str]:
    """The model on which a family's notes are run, and what it is called on the page."""
    import torch

    from cutaway.model import StandardizedTransformer
    from cutaway.subject.source_names import BUILT_IN

    if family == "phi":
        return StandardizedTransformer(BUILT_IN, dtype=torch.float32), BUILT_IN
    name = f"a tiny random {family}"
    return StandardizedTransformer(_random(family, name), check=False), name


def _random(family: str, name: str) -> Any:
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config = CONFIG_MAPPING[family](**_TINY[family], **_COMMON)
    config._name_or_path = name
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in hf.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
    return hf.eval()
