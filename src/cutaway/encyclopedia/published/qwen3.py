"""Qwen3's dense checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_MORE = {"head_dim": 128, "max_position_embeddings": 40960, **rotary(1000000.0)}

QWEN3 = Published(
    title="Qwen3",
    checkpoints=(
        Checkpoint("Qwen/Qwen3-8B", sizes(151936, 4096, 12288, 36, 32, 8, **_MORE)),
        Checkpoint("Qwen/Qwen3-0.6B", sizes(151936, 1024, 3072, 28, 16, 8, tie_word_embeddings=True, **_MORE)),
        Checkpoint("Qwen/Qwen3-4B", sizes(151936, 2560, 9728, 36, 32, 8, tie_word_embeddings=True, **_MORE)),
        Checkpoint("Qwen/Qwen3-32B", sizes(151936, 5120, 25600, 64, 64, 8, **_MORE)),
    ),
    specimen={**TINY, "head_dim": 12},
    model_type="qwen3",
)
