"""Qwen3-Next's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_SETTINGS = sizes(
    *(151936, 2048, 5120, 48, 16, 2),
    head_dim=256,
    max_position_embeddings=262144,
    num_experts=512,
    num_experts_per_tok=10,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    norm_topk_prob=True,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    **rotary(10000000.0, partial_rotary_factor=0.25),
)

QWEN3_NEXT = Published(
    title="Qwen3-Next",
    checkpoints=(
        Checkpoint("Qwen/Qwen3-Next-80B-A3B-Instruct", _SETTINGS),
        Checkpoint("Qwen/Qwen3-Next-80B-A3B-Thinking", _SETTINGS),
    ),
    specimen={
        **TINY,
        "num_hidden_layers": 4,
        "head_dim": 16,
        "num_experts": 7,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 20,
        "shared_expert_intermediate_size": 28,
        "norm_topk_prob": True,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 9,
        "linear_value_head_dim": 11,
    },
    model_type="qwen3_next",
)
