"""Qwen2's and Qwen2.5's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_ROTARY = rotary(1000000.0)

QWEN2 = Published(
    title="Qwen2 and Qwen2.5",
    checkpoints=(
        Checkpoint("Qwen/Qwen2.5-7B", sizes(152064, 3584, 18944, 28, 28, 4, max_position_embeddings=131072, **_ROTARY)),
        Checkpoint(
            "Qwen/Qwen2.5-0.5B",
            sizes(*(151936, 896, 4864, 24, 14, 2), max_position_embeddings=32768, tie_word_embeddings=True, **_ROTARY),
        ),
        Checkpoint(
            "Qwen/Qwen2.5-1.5B",
            sizes(
                *(151936, 1536, 8960, 28, 12, 2), max_position_embeddings=131072, tie_word_embeddings=True, **_ROTARY
            ),
        ),
        Checkpoint("Qwen/Qwen2-7B", sizes(152064, 3584, 18944, 28, 28, 4, max_position_embeddings=131072, **_ROTARY)),
    ),
    specimen={**TINY, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    model_type="qwen2",
)
