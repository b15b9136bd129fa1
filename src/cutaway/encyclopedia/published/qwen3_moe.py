"""Qwen3's checkpoints with experts."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_MORE = {
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "max_position_embeddings": 40960,
    **rotary(1000000.0),
}

QWEN3_MOE = Published(
    title="Qwen3-MoE",
    checkpoints=(
        Checkpoint("Qwen/Qwen3-30B-A3B", sizes(151936, 2048, 6144, 48, 32, 4, moe_intermediate_size=768, **_MORE)),
        Checkpoint("Qwen/Qwen3-235B-A22B", sizes(151936, 4096, 12288, 94, 64, 4, moe_intermediate_size=1536, **_MORE)),
    ),
    specimen={
        **TINY,
        "head_dim": 12,
        "num_experts": 7,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 20,
        "norm_topk_prob": True,
        "mlp_only_layers": [1],
    },
    model_type="qwen3_moe",
)
