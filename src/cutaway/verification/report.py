"""What `verify` returns: its findings, which print as a table."""

from __future__ import annotations

from typing import Any

from cutaway.verification.findings import Findings


class Verification(Findings):
    """The two implementations side by side on one prompt; the fields are those of `Findings`."""

    def __str__(self) -> str:
        from cutaway.verification.table import as_text

        return as_text(self)

    def __rich__(self) -> Any:
        from cutaway.verification.table import as_rich

        return as_rich(self)
