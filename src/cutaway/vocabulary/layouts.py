"""Layouts: what the axes of a value mean, and how long each is.

An axis that is a word of the standard config (`hidden_size`, `num_heads`, …) has that length; `batch` and `seq` are
the call's; `query` and `key` are positions, and with a cache `key`, like the `seq` of keys and values, counts all
positions so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """The axes of a value, in order. `str()` gives them as `[batch seq hidden_size]`."""

    name: str
    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"[{' '.join(self.axes)}]"

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape under these lengths of axes; a `KeyError` names an axis without a length."""
        return tuple(sizes[axis] for axis in self.axes)


RESIDUAL = Layout("Residual", ("batch", "seq", "hidden_size"))
LOGITS = Layout("Logits", ("batch", "seq", "vocab_size"))
NEXT_TOKEN_PROBS = Layout("NextTokenProbs", ("batch", "vocab_size"))
TOKENS = Layout("Tokens", ("batch", "seq"))
SCALAR = Layout("Scalar", ())
QUERIES = Layout("Queries", ("batch", "num_heads", "seq", "qk_head_dim"))
KEYS = Layout("Keys", ("batch", "num_kv_heads", "seq", "qk_head_dim"))
VALUE_HEADS = Layout("Values", ("batch", "num_kv_heads", "seq", "head_dim"))
PATTERN = Layout("Pattern", ("batch", "num_heads", "query", "key"))
HEAD_OUTPUTS = Layout("HeadOutputs", ("batch", "seq", "num_heads", "head_dim"))
HEAD_CONTRIBUTIONS = Layout("HeadContributions", ("batch", "seq", "num_heads", "hidden_size"))
NEURONS = Layout("Neurons", ("batch", "seq", "intermediate_size"))
SINKS = Layout("Sinks", ("batch", "num_heads", "query"))
LATENT_KV = Layout("LatentKv", ("batch", "seq", "kv_latent_size"))
ROUTER = Layout("Router", ("batch", "seq", "num_experts"))
CHOSEN = Layout("Chosen", ("batch", "seq", "experts_per_token"))
CONV = Layout("Conv", ("batch", "seq", "conv_size"))
MIXED = Layout("Mixed", ("batch", "seq", "mixer_size"))

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        RESIDUAL,
        LOGITS,
        NEXT_TOKEN_PROBS,
        TOKENS,
        SCALAR,
        QUERIES,
        KEYS,
        VALUE_HEADS,
        PATTERN,
        HEAD_OUTPUTS,
        HEAD_CONTRIBUTIONS,
        NEURONS,
        SINKS,
        LATENT_KV,
        ROUTER,
        CHOSEN,
        CONV,
        MIXED,
    )
}
