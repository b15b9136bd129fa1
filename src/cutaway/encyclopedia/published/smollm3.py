"""SmolLM3's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import TINY, Checkpoint, Published, rotary, sizes

_SETTINGS = sizes(
    *(128256, 2048, 11008, 36, 16, 4),
    tie_word_embeddings=True,
    max_position_embeddings=65536,
    rms_norm_eps=1e-6,
    **rotary(5000000.0),
)

SMOLLM3 = Published(
    title="SmolLM3",
    checkpoints=(Checkpoint("HuggingFaceTB/SmolLM3-3B", _SETTINGS),),
    specimen={**TINY, "num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 0]},
    model_type="smollm3",
)
