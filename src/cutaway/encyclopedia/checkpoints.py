"""The configs that pages are made from, without downloading anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cutaway.encyclopedia.published import PUBLISHED, Checkpoint

if TYPE_CHECKING:
    from transformers import PretrainedConfig

CHECKPOINTS: dict[str, tuple[Checkpoint, ...]] = {name: family.checkpoints for name, family in PUBLISHED.items()}
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

    return CONFIG_MAPPING[PUBLISHED[family].model_type]
