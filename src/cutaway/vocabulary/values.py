"""Every value of the vocabulary, one row each, under its host and in the order of a forward pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from cutaway.vocabulary import layouts
from cutaway.vocabulary.layouts import Layout

Host = Literal["model", "layer", "attention", "mixer", "mlp"]

HOSTS: dict[Host, str] = {
    "model": "",
    "layer": "layers.{layer}",
    "attention": "layers.{layer}.self_attn",
    "mixer": "layers.{layer}.mixer",
    "mlp": "layers.{layer}.mlp",
}
"""Each host with its path; `{layer}` stands for the layer's number."""

SUBLAYERS: dict[Host, str] = {"attention": "self_attn", "mixer": "mixer", "mlp": "mlp"}
"""The hosts in a layer, each with the standard name of the module that it is."""


@dataclass(frozen=True)
class Value:
    """A row of the vocabulary.

    A `read_only` value can be read and not edited. One with `derived_from` is computed from these values, once the pass
    has reached them, and from these weights; from no value, it is known of the call itself. One that is `only_named` is
    large beside the rest, or no tensor as they are: it is served where its name is asked for, and not by `*` or a
    function of paths. A `rare` one
    is of some families alone.
    """

    name: str
    host: Host
    layout: Layout
    meaning: str
    read_only: bool = False
    derived_from: tuple[str, ...] | None = None
    weights: tuple[str, ...] = ()
    only_named: bool = False
    rare: bool = False

    @property
    def derived(self) -> bool:
        """Whether it is computed from other values."""
        return self.derived_from is not None


_ROWS = (
    Value("input_ids", "model", layouts.TOKENS, "the token ids the model was called with"),
    Value("attention_mask", "model", layouts.TOKENS, "the mask the model was called with; zeros are padding"),
    Value(
        "input_size",
        "model",
        layouts.SCALAR,
        "batch and sequence length of this call",
        read_only=True,
        only_named=True,
        derived_from=(),
    ),
    Value(
        "token_embeddings",
        "model",
        layouts.RESIDUAL,
        "the embedding module's output; what enters the first block is `layers[0].layer_input`",
    ),
    Value("layer_input", "layer", layouts.RESIDUAL, "the stream entering the block"),
    Value("attention_norm_output", "layer", layouts.RESIDUAL, "the normed stream entering the attention"),
    Value(
        "latent_kv", "attention", layouts.LATENT_KV, "what keys and values are expanded from, after its norm", rare=True
    ),
    Value(
        "queries_before_rotary",
        "attention",
        layouts.QUERIES,
        "queries, normed where the family does, unrotated",
        rare=True,
    ),
    Value(
        "keys_before_rotary",
        "attention",
        layouts.KEYS,
        "keys of this pass's tokens, normed where the family does, unrotated",
        rare=True,
    ),
    Value(
        "attention_queries",
        "attention",
        layouts.QUERIES,
        "queries as they enter attention, after the rotary",
    ),
    Value(
        "attention_keys",
        "attention",
        layouts.KEYS,
        "keys as they enter attention, after the rotary; with a cache, those of all positions so far, and an edit "
        "counts in its pass alone, since the cache keeps the keys as they were",
    ),
    Value(
        "attention_values",
        "attention",
        layouts.VALUE_HEADS,
        "values as they enter attention; with a cache, those of all positions so far, and an edit counts in its pass "
        "alone, since the cache keeps the values as they were: one of `v_proj`'s output lasts",
    ),
    Value("attention_scores", "attention", layouts.PATTERN, "scores entering the softmax, scaled and masked"),
    Value("attention_probabilities", "attention", layouts.PATTERN, "the pattern that the values are mixed with"),
    Value(
        "attention_sinks",
        "attention",
        layouts.SINKS,
        "the share of each query's attention that goes to its head's sink, and to no key",
        read_only=True,
        rare=True,
    ),
    Value(
        "attention_head_outputs",
        "attention",
        layouts.HEAD_OUTPUTS,
        "each head's output before the output projection",
    ),
    Value(
        "attention_gate",
        "attention",
        layouts.HEAD_OUTPUTS,
        "the gate of each head's output, as its projection returns it, before the sigmoid",
        rare=True,
    ),
    Value(
        "attention_premix",
        "attention",
        layouts.HEAD_OUTPUTS,
        "every head's output side by side, as the output projection takes it: gated or normed where the family does",
    ),
    Value(
        "head_contributions",
        "attention",
        layouts.HEAD_CONTRIBUTIONS,
        "each head's part of `attention_output`, which is their sum and the output projection's bias, of no head",
        read_only=True,
        derived_from=("attention_premix",),
        weights=("W_O",),
        only_named=True,
    ),
    Value("attention_output", "attention", layouts.RESIDUAL, "what the attention adds to the stream"),
    Value("mixer_norm_output", "layer", layouts.RESIDUAL, "the normed stream entering the mixer", rare=True),
    Value(
        "conv_output", "mixer", layouts.CONV, "what the short convolution over positions returns, activated", rare=True
    ),
    Value(
        "ssm_output", "mixer", layouts.MIXED, "what the recurrence gives, before gate and output projection", rare=True
    ),
    Value(
        "mixer_output",
        "mixer",
        layouts.RESIDUAL,
        "what a token mixer that is no attention adds to the stream",
        rare=True,
    ),
    Value("layer_mid", "layer", layouts.RESIDUAL, "the stream between attention and MLP"),
    Value("mlp_norm_output", "layer", layouts.RESIDUAL, "the normed stream entering the MLP"),
    Value("mlp_input", "layer", layouts.RESIDUAL, "what the MLP is called with"),
    Value(
        "router_logits",
        "mlp",
        layouts.ROUTER,
        "the router's score of each expert; the choice is made inside the router, so an edit belongs to the two below",
        read_only=True,
        rare=True,
    ),
    Value("expert_weights", "mlp", layouts.CHOSEN, "what each chosen expert's output is multiplied by", rare=True),
    Value(
        "expert_indices",
        "mlp",
        layouts.CHOSEN,
        "which experts are chosen; an edit routes the token to these instead",
        rare=True,
    ),
    Value("mlp_activation", "mlp", layouts.NEURONS, "the activation function's output"),
    Value(
        "mlp_neurons",
        "mlp",
        layouts.NEURONS,
        "what the down projection receives: act(gate) * up when gated, the activation itself otherwise",
    ),
    Value("routed_output", "mlp", layouts.RESIDUAL, "the weighted sum of the chosen experts' outputs", rare=True),
    Value(
        "shared_expert_output",
        "mlp",
        layouts.RESIDUAL,
        "the output of the experts that every token goes through, before a gate of theirs",
        rare=True,
    ),
    Value("mlp_output", "mlp", layouts.RESIDUAL, "what the MLP adds to the stream"),
    Value("layer_output", "layer", layouts.RESIDUAL, "the stream leaving the block"),
    Value("final_norm_output", "model", layouts.RESIDUAL, "the stream after the final norm; what `lm_head` reads"),
    Value("lm_head_output", "model", layouts.LOGITS, "the head's own output, before a soft cap or scale"),
    Value(
        "logits",
        "model",
        layouts.LOGITS,
        "what the model returns, after anything done past `lm_head`",
    ),
    Value(
        "next_token_probs",
        "model",
        layouts.NEXT_TOKEN_PROBS,
        "the distribution over the next token at each row's last real position, in float32",
        read_only=True,
        derived_from=("logits",),
    ),
)


def as_rare(value: Value) -> Value:
    """A row as one of some families alone."""
    return replace(value, rare=True)


VALUES: dict[str, Value] = {value.name: value for value in _ROWS}
"""All values by name. A name belongs to one host, so a name alone tells where its value hangs."""


COMMON: dict[str, Value] = {name: value for name, value in VALUES.items() if not value.rare}
"""The values that are not of some families alone."""


def values_of(host: Host) -> list[Value]:
    """The values that hang on a host, in the order of a forward pass."""
    return [value for value in VALUES.values() if value.host == host]
