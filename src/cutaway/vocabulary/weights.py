"""The weights under standard names, in one orientation for every family: what is read stands first, what is written
last, so that `x @ W + b` is what the projection makes of `x`.

Heads have an axis of their own. A bias belongs to its matrix, and is None where the projection has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutaway.vocabulary.layouts import Layout
from cutaway.vocabulary.values import Host


@dataclass(frozen=True)
class Weight:
    """A row of the table: a matrix, or the bias of the matrix `bias_of`."""

    name: str
    host: Host
    layout: Layout
    meaning: str
    bias_of: str = ""

    @property
    def matrix(self) -> str:
        """The matrix that it is or belongs to."""
        return self.bias_of or self.name


def _matrix(name: str, host: Host, axes: str, meaning: str) -> Weight:
    return Weight(name, host, Layout(name, tuple(axes.split())), meaning)


def _bias(name: str, host: Host, axes: str, bias_of: str, meaning: str) -> Weight:
    return Weight(name, host, Layout(name, tuple(axes.split())), f"{meaning}; None where there is none", bias_of)


_ROWS = (
    _matrix("W_E", "model", "vocab_size hidden_size", "the embedding of each token"),
    _matrix("W_Q", "attention", "num_heads hidden_size qk_head_dim", "each head's projection to queries"),
    _bias("b_Q", "attention", "num_heads qk_head_dim", "W_Q", "what is added to each head's queries"),
    _matrix("W_K", "attention", "num_kv_heads hidden_size qk_head_dim", "each key head's projection to keys"),
    _bias("b_K", "attention", "num_kv_heads qk_head_dim", "W_K", "what is added to each key head's keys"),
    _matrix("W_V", "attention", "num_kv_heads hidden_size head_dim", "each key head's projection to values"),
    _bias("b_V", "attention", "num_kv_heads head_dim", "W_V", "what is added to each key head's values"),
    _matrix("W_O", "attention", "num_heads head_dim hidden_size", "each head's projection back to the stream"),
    _bias("b_O", "attention", "hidden_size", "W_O", "what is added once, of no head"),
    _matrix("W_gate", "mlp", "hidden_size intermediate_size", "the gate's projection, where the MLP is gated"),
    _bias("b_gate", "mlp", "intermediate_size", "W_gate", "what is added to the gate"),
    _matrix("W_in", "mlp", "hidden_size intermediate_size", "the projection from the stream to the neurons"),
    _bias("b_in", "mlp", "intermediate_size", "W_in", "what is added to the neurons before the activation or the gate"),
    _matrix("W_out", "mlp", "intermediate_size hidden_size", "the projection of the neurons back to the stream"),
    _bias("b_out", "mlp", "hidden_size", "W_out", "what is added to the MLP's output"),
    _matrix("W_U", "model", "hidden_size vocab_size", "the projection of the normed stream onto the vocabulary"),
    _bias("b_U", "model", "vocab_size", "W_U", "what is added to the logits"),
)

WEIGHTS: dict[str, Weight] = {weight.name: weight for weight in _ROWS}
"""All weights by name."""


def weights_of(host: Host) -> list[Weight]:
    """The weights that hang on a host."""
    return [weight for weight in WEIGHTS.values() if weight.host == host]
