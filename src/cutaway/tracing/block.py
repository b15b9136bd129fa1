"""A with-block that leaves nothing behind, whenever an interrupt comes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Block:
    """What is put on something when a block is entered, and taken off when it is left or let go of."""

    _entered = False

    def __enter__(self) -> Self:
        if self._entered:
            self._refuse_again()
        try:
            self._entered = True
            self._enter()
            return self
        except BaseException:
            self._shut()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            try:
                afterwards = self._leave(error)
            finally:
                self._shut()
        except BaseException:
            self._shut()  # once more, where an interrupt has cut it short
            raise
        if afterwards is not None:
            afterwards()

    def __del__(self) -> None:
        # An interrupt at the instant of leaving has left the block by another way; it is let go of thereby.
        if self._entered:
            with contextlib.suppress(Exception):
                self._shut()

    def _shut(self) -> None:
        self._close()
        self._entered = False

    def _refuse_again(self) -> None:
        """Raises where the block is entered that is entered already."""
        raise NotImplementedError

    def _enter(self) -> None:
        """Puts everything on."""
        raise NotImplementedError

    def _leave(self, error: BaseException | None) -> Callable[[], None] | None:
        """Does what is to be done before everything is taken off.

        Args:
            error: by which the block is left, if it is.

        Returns:
            what is to be done afterwards, if anything is.
        """
        raise NotImplementedError

    def _close(self) -> None:
        """Takes everything off; another call does what an interrupt has left of it."""
        raise NotImplementedError
