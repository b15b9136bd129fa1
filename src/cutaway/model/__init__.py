"""A transformers model under the standard vocabulary: `StandardizedTransformer`, its hosts, traces and checks."""

from cutaway.model.saving import save
from cutaway.model.standardized import StandardizedTransformer

__all__ = ["StandardizedTransformer", "save"]
