"""StableLM's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_QUARTER = {"max_position_embeddings": 4096, "layer_norm_eps": 1e-5, **rotary(10000.0, partial_rotary_factor=0.25)}

STABLELM = Published(
    title="StableLM",
    checkpoints=(
        Checkpoint("stabilityai/stablelm-3b-4e1t", sizes(50304, 2560, 6912, 32, 32, 32, **_QUARTER)),
        Checkpoint(
            "stabilityai/stablelm-2-1_6b",
            sizes(100352, 2048, 5632, 24, 32, 32, use_qkv_bias=True, dtype="float16", **_QUARTER),
        ),
        Checkpoint(
            "stabilityai/stablelm-2-12b",
            sizes(100352, 5120, 13824, 40, 32, 8, qk_layernorm=True, use_parallel_residual=True, **_QUARTER),
        ),
    ),
    specimen={**TINY, **rotary(10000.0, partial_rotary_factor=0.5)},
    model_type="stablelm",
)
