"""`cutaway.verify`: the running model and the NumPy reference side by side, value by value and layer by layer.

Two things are held against each other at every value. *Whole*: both implementations run from the prompt, and the
difference is what has come together so far. *Step*: the reference makes this one value of the model's own values
before it, so that a step that is another shows where it is, however far the passes have come apart. Where a step parts,
it is done again with what is often got wrong (`causes`, `attention_causes`), and what then agrees is the likely reason.

`run` walks both passes together, a block at a time; `differences` and `tolerances` say what agreement is; `report` and
`table` say what was found.
"""

from cutaway.verification.differences import Difference
from cutaway.verification.findings import Compared, ValueRow, Verdict
from cutaway.verification.report import Verification
from cutaway.verification.run import verify
from cutaway.verification.tolerances import Tolerance, tolerance_for

__all__ = [
    "Compared",
    "Difference",
    "Tolerance",
    "ValueRow",
    "Verdict",
    "Verification",
    "tolerance_for",
    "verify",
]
