"""The three published checkpoints, from their configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Three checkpoints, two shapes",
    figures={
        "phi_1": "parameters of phi-1",
        "phi_1_5": "parameters of phi-1.5",
        "phi_2": "parameters of phi-2",
        "same": "sizes in which phi-1 and phi-1.5 differ",
        "differ": "sizes in which phi-1.5 and phi-2 differ",
    },
    on="the three configs",
)
def three_checkpoints(model: StandardizedTransformer) -> dict[str, Any]:
    """phi-1 and phi-1.5 are one shape filled with different training, {phi_1} parameters each; phi-2 is wider and
    deeper, with {phi_2}. All keep 2,048 positions, untied embeddings and 32 rotated dimensions a head, which is half
    of a head in the first two and two fifths in phi-2. The files of phi-1 are float32, the others float16, and a load
    without `dtype` keeps what the file has. Counted on the meta device, from configs that ship with Cutaway."""
    names = ("microsoft/phi-1", "microsoft/phi-1_5", "microsoft/phi-2")
    phis = [type(model)(name, dispatch=False) for name in names]
    counts = [sum(weights.numel() for weights in phi.hf.parameters()) for phi in phis]

    for phi, dtype in zip(phis, (torch.float32, torch.float16, torch.float16), strict=True):
        assert phi.dtype == dtype
        assert phi.config.max_position_embeddings == 2048
        assert not phi.config.tie_word_embeddings
        assert round(phi.head_dim * phi.config.rope_parameters["partial_rotary_factor"]) == 32

    def differing(a: dict[str, int], b: dict[str, int]) -> list[str]:
        return [name for name in a if a[name] != b[name]]

    first, second, third = (phi.sizes for phi in phis)
    assert differing(first, second) == []
    return {
        **dict(zip(("phi_1", "phi_1_5", "phi_2"), counts, strict=True)),
        "same": "none",
        "differ": differing(second, third),
    }
