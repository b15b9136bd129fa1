"""Gemma 2's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_MORE = {"max_position_embeddings": 8192, "sliding_window": 4096, **rotary(10000.0)}

GEMMA2 = Published(
    title="Gemma 2",
    checkpoints=(
        Checkpoint("google/gemma-2-2b", sizes(256000, 2304, 9216, 26, 8, 4, head_dim=256, **_MORE)),
        Checkpoint("google/gemma-2-9b", sizes(256000, 3584, 14336, 42, 16, 8, head_dim=256, **_MORE)),
        Checkpoint(
            "google/gemma-2-27b",
            sizes(256000, 4608, 36864, 46, 32, 16, head_dim=128, query_pre_attn_scalar=144, **_MORE),
        ),
    ),
    specimen={
        **TINY,
        "num_hidden_layers": 4,
        "head_dim": 12,
        "query_pre_attn_scalar": 20,
        "sliding_window": 4,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 9.0,
    },
    model_type="gemma2",
)
