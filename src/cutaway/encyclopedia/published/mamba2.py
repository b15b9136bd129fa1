"""Mamba 2's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published


def _sizes(hidden: int, layers: int) -> dict[str, object]:
    return {
        "vocab_size": 50288,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_heads": 2 * hidden // 64,
        "head_dim": 64,
        "n_groups": 1,
        "state_size": 128,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


MAMBA2 = Published(
    title="Mamba 2",
    checkpoints=(
        Checkpoint("AntonV/mamba2-130m-hf", _sizes(768, 24)),
        Checkpoint("AntonV/mamba2-370m-hf", _sizes(1024, 48)),
        Checkpoint(
            "mistralai/Mamba-Codestral-7B-v0.1",
            {
                "vocab_size": 32768,
                "hidden_size": 4096,
                "num_hidden_layers": 64,
                "num_heads": 128,
                "head_dim": 64,
                "n_groups": 8,
                "state_size": 128,
                "tie_word_embeddings": False,
                "dtype": "bfloat16",
            },
        ),
    ),
    specimen={
        "vocab_size": 96,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_heads": 12,
        "head_dim": 8,
        "n_groups": 2,
        "state_size": 10,
        "chunk_size": 4,
    },
    model_type="mamba2",
)
