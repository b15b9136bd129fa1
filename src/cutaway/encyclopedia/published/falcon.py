"""Falcon's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published


def _sizes(vocab: int, hidden: int, layers: int, heads: int, **more: object) -> dict[str, object]:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "dtype": "bfloat16",
        **more,
    }


_GROUPS = {"new_decoder_architecture": True, "num_kv_heads": 8}

FALCON = Published(
    title="Falcon",
    checkpoints=(
        Checkpoint("tiiuae/falcon-7b", _sizes(65024, 4544, 32, 71)),
        Checkpoint("tiiuae/falcon-40b", _sizes(65024, 8192, 60, 128, **_GROUPS)),
        Checkpoint(
            "tiiuae/falcon-11B",
            _sizes(65024, 4096, 60, 32, num_ln_in_parallel_attn=1, tie_word_embeddings=False, **_GROUPS),
        ),
        Checkpoint(
            "tiiuae/falcon-rw-1b",
            _sizes(50304, 2048, 24, 32, alibi=True, bias=True, multi_query=False, parallel_attn=False),
        ),
    ),
    specimen={
        "vocab_size": 96,
        "hidden_size": 48,
        "ffn_hidden_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "max_position_embeddings": 64,
    },
    model_type="falcon",
)
