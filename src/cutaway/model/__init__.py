"""A transformers model under the standard vocabulary: `StandardizedTransformer`, its hosts, traces and checks."""

from cutaway.model.standardized import StandardizedTransformer
from cutaway.passes.saving import save

__all__ = ["StandardizedTransformer", "save"]
