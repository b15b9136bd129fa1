"""Properties that run a pass, of objects that answer a name they do not know."""

from __future__ import annotations

import threading
from typing import Any


class Asked(property):
    """A property that asks the pass under way. What it raises stays what it is, an `AttributeError` too.

    Python asks `__getattr__` where a property has raised an `AttributeError`, and forgets the error. So a `__getattr__`
    of the same class begins with `raise_again()`.
    """

    def __get__(self, host: Any, owner: type | None = None) -> Any:
        if host is None:
            return self
        try:
            return super().__get__(host, owner)
        except AttributeError as error:
            _raised.error = error
            raise


def raise_again() -> None:
    """Raises what an `Asked` property has just raised; does nothing where it was no property that was asked."""
    error: AttributeError | None = _raised.__dict__.pop("error", None)
    if error is not None:
        raise error


_raised = threading.local()
