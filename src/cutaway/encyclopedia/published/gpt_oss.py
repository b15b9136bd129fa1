"""gpt-oss's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, sizes

_COMMON = {"head_dim": 64, "num_experts_per_tok": 4, "sliding_window": 128, "max_position_embeddings": 131072}

GPT_OSS = Published(
    title="gpt-oss",
    checkpoints=(
        Checkpoint("openai/gpt-oss-20b", sizes(201088, 2880, 2880, 24, 64, 8, num_local_experts=32, **_COMMON)),
        Checkpoint("openai/gpt-oss-120b", sizes(201088, 2880, 2880, 36, 64, 8, num_local_experts=128, **_COMMON)),
    ),
    specimen={
        **TINY,
        "max_position_embeddings": 131072,
        "num_hidden_layers": 4,
        "head_dim": 12,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "sliding_window": 4,
    },
    model_type="gpt_oss",
)
