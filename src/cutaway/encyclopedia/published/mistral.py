"""Mistral's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_EPSILON = {"rms_norm_eps": 1e-5}

MISTRAL = Published(
    title="Mistral",
    checkpoints=(
        Checkpoint(
            "mistralai/Mistral-7B-v0.1",
            sizes(
                *(32000, 4096, 14336, 32, 32, 8),
                max_position_embeddings=32768,
                sliding_window=4096,
                **_EPSILON,
                **rotary(10000.0),
            ),
        ),
        Checkpoint(
            "mistralai/Mistral-7B-v0.3",
            sizes(
                *(32768, 4096, 14336, 32, 32, 8),
                max_position_embeddings=32768,
                sliding_window=None,
                **_EPSILON,
                **rotary(1000000.0),
            ),
        ),
        Checkpoint(
            "mistralai/Mistral-Nemo-Base-2407",
            sizes(
                *(131072, 5120, 14336, 40, 32, 8),
                head_dim=128,
                max_position_embeddings=131072,
                sliding_window=None,
                **_EPSILON,
                **rotary(1000000.0),
            ),
        ),
    ),
    specimen={**TINY, "sliding_window": 4, "head_dim": 12},
    model_type="mistral",
)
