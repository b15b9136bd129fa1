"""Phi-3's, Phi-3.5's and Phi-4's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_SHORT = {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096}
_TURN = rotary(10000.0, partial_rotary_factor=1.0)

PHI3 = Published(
    title="Phi-3 and Phi-4",
    checkpoints=(
        Checkpoint(
            "microsoft/Phi-3-mini-4k-instruct",
            sizes(32064, 3072, 8192, 32, 32, 32, sliding_window=2047, **_SHORT, **_TURN),
        ),
        Checkpoint(
            "microsoft/Phi-3-medium-4k-instruct",
            sizes(32064, 5120, 17920, 40, 40, 10, sliding_window=2047, **_SHORT, **_TURN),
        ),
        Checkpoint(
            "microsoft/phi-4",
            sizes(
                *(100352, 5120, 17920, 40, 40, 10),
                rms_norm_eps=1e-5,
                max_position_embeddings=16384,
                original_max_position_embeddings=16384,
                pad_token_id=None,
                **rotary(250000.0, partial_rotary_factor=1.0),
            ),
        ),
    ),
    specimen={**TINY, **rotary(10000.0, partial_rotary_factor=0.5)},
    model_type="phi3",
)
