"""Mixtral's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_MORE = {"rms_norm_eps": 1e-5, "num_local_experts": 8, "num_experts_per_tok": 2, **rotary(1000000.0)}

MIXTRAL = Published(
    title="Mixtral",
    checkpoints=(
        Checkpoint(
            "mistralai/Mixtral-8x7B-v0.1",
            sizes(32000, 4096, 14336, 32, 32, 8, max_position_embeddings=32768, **_MORE),
        ),
        Checkpoint(
            "mistralai/Mixtral-8x22B-Instruct-v0.1",
            sizes(32768, 6144, 16384, 56, 48, 8, max_position_embeddings=65536, **_MORE),
        ),
    ),
    specimen={**TINY, "num_local_experts": 5, "num_experts_per_tok": 2},
    model_type="mixtral",
)
