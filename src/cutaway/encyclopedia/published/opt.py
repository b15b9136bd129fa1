"""OPT's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published


def _sizes(hidden: int, layers: int, heads: int, **more: object) -> dict[str, object]:
    return {
        "vocab_size": 50272,
        "hidden_size": hidden,
        "ffn_dim": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "word_embed_proj_dim": hidden,
        "dtype": "float16",
        **more,
    }


OPT = Published(
    title="OPT",
    checkpoints=(
        Checkpoint("facebook/opt-125m", _sizes(768, 12, 12)),
        Checkpoint("facebook/opt-350m", _sizes(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False)),
        Checkpoint("facebook/opt-1.3b", _sizes(2048, 24, 32)),
        Checkpoint("facebook/opt-6.7b", _sizes(4096, 32, 32)),
    ),
    specimen={
        "vocab_size": 96,
        "hidden_size": 48,
        "ffn_dim": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "word_embed_proj_dim": 48,
        "max_position_embeddings": 64,
    },
    model_type="opt",
)
