"""The models that notes run on when pages are built: the built-in checkpoint for Phi, and for the others tiny random
models, made so that a fault shows: large weights, biases and norms away from where they begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.published import PUBLISHED

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_SPREAD = 0.3
"""The standard deviation of weights: large, so that no part of a pass is near to nothing."""

_COMMON: dict[str, Any] = {
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def specimen_of(family: str) -> tuple[StandardizedTransformer, str]:
    """The model on which a family's notes are run, and what it is called on the page."""
    import torch

    from cutaway.model import StandardizedTransformer
    from cutaway.subject.source_names import BUILT_IN

    settings = PUBLISHED[family].specimen
    if settings is None:
        return StandardizedTransformer(BUILT_IN, dtype=torch.float32), BUILT_IN
    name = f"a tiny random {PUBLISHED[family].title}"
    model = _random(PUBLISHED[family].model_type, {**_COMMON, **settings}, name)
    return StandardizedTransformer(model, check=False), name


def _random(model_type: str, settings: Mapping[str, Any], name: str) -> Any:
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    kind: Any = CONFIG_MAPPING[model_type]
    spread = "initializer_range" if hasattr(kind(), "initializer_range") else "init_std"
    config = kind(**settings, **{spread: _SPREAD})
    config._name_or_path = name
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in hf.parameters():
                if parameter.ndim == 1:
                    parameter.add_(_SPREAD * torch.randn_like(parameter))
    return hf.eval()
