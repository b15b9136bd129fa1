"""`check()`: does this model, under this load, keep what the vocabulary promises?

A few passes of a few tokens, see `cutaway.inspection.check.run`. That an edit arrives is tested where it arrives, by
what cannot depend on the weights: not by how far logits move.
"""

from cutaway.inspection.check.report import CheckReport, CheckResult, Untested
from cutaway.inspection.check.run import check

__all__ = ["CheckReport", "CheckResult", "Untested", "check"]
