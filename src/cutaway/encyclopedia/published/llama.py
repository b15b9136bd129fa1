"""Llama's checkpoints, and those built like it."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_EPSILON = {"rms_norm_eps": 1e-5}


def _stretched(factor: float) -> dict[str, object]:
    frequencies = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    stretched = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, **frequencies}
    return {"max_position_embeddings": 131072, "rope_parameters": stretched, **_EPSILON}


LLAMA = Published(
    title="Llama",
    checkpoints=(
        Checkpoint("meta-llama/Llama-3.1-8B", sizes(128256, 4096, 14336, 32, 32, 8, **_stretched(8.0))),
        Checkpoint(
            "meta-llama/Llama-3.2-1B",
            sizes(128256, 2048, 8192, 16, 32, 8, head_dim=64, tie_word_embeddings=True, **_stretched(32.0)),
        ),
        Checkpoint(
            "meta-llama/Llama-2-7b-hf",
            sizes(32000, 4096, 11008, 32, 32, 32, max_position_embeddings=4096, **_EPSILON, **rotary(10000.0)),
        ),
        Checkpoint(
            "HuggingFaceTB/SmolLM2-135M",
            sizes(
                *(49152, 576, 1536, 30, 9, 3),
                max_position_embeddings=8192,
                tie_word_embeddings=True,
                **_EPSILON,
                **rotary(100000.0),
            ),
        ),
    ),
    specimen=TINY,
    model_type="llama",
)
