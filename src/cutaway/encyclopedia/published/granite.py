"""Granite 3's dense checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_COMMON = {
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    **rotary(10000.0),
}
_SMALL = {"logits_scaling": 8.0, "attention_multiplier": 0.015625, **_COMMON}
_LARGE = {"logits_scaling": 16.0, "attention_multiplier": 0.0078125, **_COMMON}

GRANITE = Published(
    title="Granite",
    checkpoints=(
        Checkpoint("ibm-granite/granite-3.0-2b-base", sizes(49155, 2048, 8192, 40, 32, 8, **_SMALL)),
        Checkpoint("ibm-granite/granite-3.0-8b-base", sizes(49155, 4096, 12800, 40, 32, 8, **_LARGE)),
    ),
    specimen={
        **TINY,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
        "attention_multiplier": 0.2,
    },
    model_type="granite",
)
