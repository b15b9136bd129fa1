"""OLMo 2's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_MORE = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "dtype": "float32", **rotary(500000.0)}

OLMO2 = Published(
    title="OLMo 2",
    checkpoints=(
        Checkpoint("allenai/OLMo-2-1124-7B", sizes(100352, 4096, 11008, 32, 32, 32, **_MORE)),
        Checkpoint("allenai/OLMo-2-0425-1B", sizes(100352, 2048, 8192, 16, 16, 16, **_MORE)),
        Checkpoint("allenai/OLMo-2-1124-13B", sizes(100352, 5120, 13824, 40, 40, 40, **_MORE)),
        Checkpoint("allenai/OLMo-2-0325-32B", sizes(100352, 5120, 27648, 64, 40, 8, **_MORE)),
    ),
    specimen=TINY,
    model_type="olmo2",
)
