"""Phi's MLP: up to four times the width, the activation, and back. `PhiMLP` in transformers' `modeling_phi.py`."""

from __future__ import annotations

from cutaway.reference.parts import Array, gelu_new
from cutaway.reference.record import Record, ignore
from cutaway.reference.weights import Weights, linear


class PhiMLP:
    """`fc2(gelu_new(fc1(x)))`, not gated; both maps have biases.

    Args:
        hidden_size: width of the residual stream.
        intermediate_size: neurons.
        weights: where the weights come from.

    Attributes:
        fc1: `[hidden_size]` to `[intermediate_size]`.
        down_proj: `[intermediate_size]` to `[hidden_size]`; Phi's own name for it is `fc2`.
    """

    def __init__(self, hidden_size: int, intermediate_size: int, weights: Weights) -> None:
        self.fc1 = linear(weights, "fc1", hidden_size, intermediate_size)
        self.down_proj = linear(weights, "down_proj", intermediate_size, hidden_size)

    def __call__(self, x: Array, record: Record = ignore) -> Array:
        """`[batch seq hidden_size]` to the same shape, always a new array."""
        neurons = self.fc1(x)  # [batch seq intermediate_size]
        gelu_new(neurons, out=neurons)
        record("mlp_activation", neurons)
        record("mlp_neurons", neurons)
        output = self.down_proj(neurons)
        record("mlp_output", output)
        return output
