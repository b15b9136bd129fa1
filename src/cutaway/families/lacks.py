"""Why most families lack a value that some have. A family file says so only where it has a reason of its own."""

from __future__ import annotations

_NO_EXPERTS = "The MLP has no experts: every token goes through all of it."
_NO_MIXER = "The layer has no token mixer beside attention, neither a recurrence nor a convolution over positions."
_NO_LATENT = "Keys and values are projected from the stream itself, and not expanded from a latent."
_NO_PLACE = "{} before the rotary pass at no place of their own: no module returns them alone, or there is no rotary."

_LACKS = {
    "latent_kv": _NO_LATENT,
    "queries_before_rotary": _NO_PLACE.format("Queries"),
    "keys_before_rotary": _NO_PLACE.format("Keys"),
    "attention_sinks": "The softmax is over keys alone: heads have no sink.",
    "attention_gate": "The heads' outputs go to the output projection ungated.",
    "mixer_norm_output": _NO_MIXER,
    "conv_output": _NO_MIXER,
    "ssm_output": _NO_MIXER,
    "mixer_output": _NO_MIXER,
    "router_logits": _NO_EXPERTS,
    "expert_weights": _NO_EXPERTS,
    "expert_indices": _NO_EXPERTS,
    "routed_output": _NO_EXPERTS,
    "shared_expert_output": "The MLP has no experts that every token goes through beside chosen ones.",
}


def why_lacking(name: str, family: str, *, derived: bool = False) -> str:
    """A sentence for a value for which a family states neither site nor reason."""
    told = f"No `{name}` was found in a pass of this model." if derived else ""
    return _LACKS.get(name) or told or f"The family file of {family} has no site for `{name}`."
