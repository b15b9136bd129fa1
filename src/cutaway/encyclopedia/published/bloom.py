"""Bloom's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published


def _sizes(hidden: int, layers: int, heads: int, dtype: str = "float16") -> dict[str, object]:
    return {"vocab_size": 250880, "hidden_size": hidden, "n_layer": layers, "n_head": heads, "dtype": dtype}


BLOOM = Published(
    title="Bloom",
    checkpoints=(
        Checkpoint("bigscience/bloom-560m", _sizes(1024, 24, 16)),
        Checkpoint("bigscience/bloom-1b1", _sizes(1536, 24, 16)),
        Checkpoint("bigscience/bloom-7b1", _sizes(4096, 30, 32)),
        Checkpoint("bigscience/bloom", _sizes(14336, 70, 112, "bfloat16")),
    ),
    specimen={"vocab_size": 96, "hidden_size": 48, "n_layer": 3, "n_head": 6},
    model_type="bloom",
)
