"""Gemma 3's checkpoints of text alone."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, sizes

_WINDOW = {"max_position_embeddings": 32768, "sliding_window": 512}

GEMMA3 = Published(
    title="Gemma 3",
    checkpoints=(
        Checkpoint("google/gemma-3-1b-pt", sizes(262144, 1152, 6912, 26, 4, 1, head_dim=256, **_WINDOW)),
        Checkpoint("google/gemma-3-270m", sizes(262144, 640, 2048, 18, 4, 1, head_dim=256, **_WINDOW)),
    ),
    specimen={
        **TINY,
        "num_hidden_layers": 4,
        "head_dim": 12,
        "query_pre_attn_scalar": 20,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    },
    model_type="gemma3_text",
)
