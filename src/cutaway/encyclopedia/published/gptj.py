"""GPT-J's checkpoint."""

from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published

GPTJ = Published(
    title="GPT-J",
    checkpoints=(
        Checkpoint(
            "EleutherAI/gpt-j-6b",
            {"vocab_size": 50400, "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64, "dtype": "float32"},
        ),
    ),
    specimen={"vocab_size": 96, "n_embd": 48, "n_layer": 3, "n_head": 4, "rotary_dim": 4, "n_positions": 64},
    model_type="gptj",
)
