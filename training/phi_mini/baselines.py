"""What a model has to beat: a unigram and a smoothed bigram, fitted on the stream that it was trained on.

Both are exact counts. The bigram is interpolated with the unigram by a Dirichlet prior,

    p(b | a) = (count(a b) + weight * p(b)) / (count(a) + weight),

so that a context seen often trusts its own counts and a rare one falls back on the unigram (MacKay and Peto, 1995, "A
hierarchical Dirichlet language model"). The weight is chosen on training text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

WEIGHTS = tuple(2.0**power for power in range(11))
SET_ASIDE = 0.1


@dataclass(frozen=True)
class Unigram:
    """Each token by its frequency, one added to every count so that no token is impossible."""

    log_probs: Tensor  # (vocab,), float64

    @classmethod
    def fit(cls, stream: Tensor, vocab: int) -> Unigram:
        counts = torch.bincount(stream, minlength=vocab).double() + 1
        return cls((counts / counts.sum()).log())

    def loss(self, stream: Tensor) -> float:
        """Mean negative log-likelihood in nats of every token after the first."""
        return -self.log_probs[stream[1:]].mean().item()


@dataclass(frozen=True)
class Bigram:
    """Each token given the one before it."""

    log_probs: Tensor  # (vocab, vocab): a row for each context, float64
    weight: float

    @classmethod
    def fit(cls, stream: Tensor, vocab: int, weight: float) -> Bigram:
        pairs = torch.bincount(stream[:-1] * vocab + stream[1:], minlength=vocab * vocab).view(vocab, vocab).double()
        prior = Unigram.fit(stream, vocab).log_probs.exp()
        probs = (pairs + weight * prior) / (pairs.sum(dim=1, keepdim=True) + weight)
        return cls(probs.log(), weight)

    @classmethod
    def choose(cls, stream: Tensor, vocab: int, weights: Sequence[float] = WEIGHTS) -> Bigram:
        """Fits on the whole stream with the weight that did best on its last tenth, fitted on the rest."""
        cut = round(len(stream) * (1 - SET_ASIDE))
        best = min(weights, key=lambda weight: cls.fit(stream[:cut], vocab, weight).loss(stream[cut:]))
        return cls.fit(stream, vocab, best)

    def loss(self, stream: Tensor) -> float:
        """Mean negative log-likelihood in nats of every token after the first."""
        return -self.log_probs[stream[:-1], stream[1:]].mean().item()
