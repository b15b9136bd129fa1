"""Interrupts at each point of our own code in turn: a tracer raises `KeyboardInterrupt` there, once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import cutaway

SOURCE = str(Path(cutaway.__file__).parent)
Points = Callable[[FrameType], bool]


class Injection:
    """Counts the lines (or with `opcodes` the instructions) of ours that run, and raises at the one that is due."""

    def __init__(self, due: int | None = None, *, opcodes: bool = False) -> None:
        self.due, self.count, self.where = due, 0, ""
        self._event = "opcode" if opcodes else "line"
        self._opcodes = opcodes

    def __enter__(self) -> Injection:
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        frame.f_trace_opcodes = self._opcodes
        return self._at

    def _at(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == self._event:
            self.count += 1
            if self.count == self.due:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._at
