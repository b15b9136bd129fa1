"""GPT-2's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published


def _sizes(layers: int, width: int, heads: int) -> dict[str, object]:
    return {"n_layer": layers, "n_embd": width, "n_head": heads, "dtype": "float32"}


GPT2 = Published(
    title="GPT-2",
    checkpoints=(
        Checkpoint("openai-community/gpt2", _sizes(12, 768, 12)),
        Checkpoint("openai-community/gpt2-medium", _sizes(24, 1024, 16)),
        Checkpoint("openai-community/gpt2-large", _sizes(36, 1280, 20)),
        Checkpoint("openai-community/gpt2-xl", _sizes(48, 1600, 25)),
    ),
    specimen={"vocab_size": 96, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64},
    model_type="gpt2",
)
