"""GPT-NeoX's and Pythia's checkpoints."""

from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published


def _sizes(hidden: int, inner: int, layers: int, heads: int, vocab: int = 50304, **more: object) -> dict[str, object]:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "dtype": "float16",
        **more,
    }


GPT_NEOX = Published(
    title="GPT-NeoX",
    checkpoints=(
        Checkpoint("EleutherAI/pythia-1.4b", _sizes(2048, 8192, 24, 16)),
        Checkpoint("EleutherAI/pythia-70m", _sizes(512, 2048, 6, 8)),
        Checkpoint("EleutherAI/pythia-410m", _sizes(1024, 4096, 24, 16)),
        Checkpoint("EleutherAI/pythia-6.9b", _sizes(4096, 16384, 32, 32, vocab=50432)),
        Checkpoint("EleutherAI/gpt-neox-20b", _sizes(6144, 24576, 44, 64, vocab=50432, hidden_act="gelu_fast")),
    ),
    specimen={
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    },
    model_type="gpt_neox",
)
