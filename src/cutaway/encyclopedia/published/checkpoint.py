"""What a page knows of a published checkpoint, and the settings that many of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint: its hub id, and for one without a shipped config, what the config says."""

    hub_id: str
    settings: Mapping[str, Any] | None = None

    @property
    def short(self) -> str:
        """The id without its owner."""
        return self.hub_id.rpartition("/")[2]


@dataclass(frozen=True)
class Published:
    """What a family's page is made from.

    Attributes:
        title: how the family is called in a heading.
        checkpoints: its reference checkpoint first, then others to compare.
        specimen: the settings of the tiny random model on which its notes run; None where these run on a real one.
        model_type: the word by which transformers knows its config.
    """

    title: str
    checkpoints: tuple[Checkpoint, ...]
    specimen: Mapping[str, Any] | None
    model_type: str


def sizes(
    vocab: int, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, *, dtype: Any = "bfloat16", **more: Any
) -> dict[str, Any]:
    """A config's sizes in the words that most families use."""
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "dtype": dtype,
        **more,
    }


def rotary(theta: float, **more: Any) -> dict[str, Any]:
    """A plain rotary of this base."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


TINY: Mapping[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
"""A tiny model in the words that most families use; no two sizes are the same."""
