"""Interrupts at each point of our own code in turn: a tracer raises `KeyboardInterrupt` there, once."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
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
        if event == self._event and frame.f_lasti not in _on_the_way_out(frame.f_code):
            self.count += 1
            if self.count == self.due:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._at


@cache
def _on_the_way_out(code: CodeType) -> frozenset[int]:
    """The instructions between the end of a with-block's body and the call of its `__exit__`.

    Python delivers a signal behind calls and at jumps, and so never there. One that was raised there would leave a lock
    locked, whoever wrote the block.
    """
    found: set[int] = set()
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for i in range(len(steps) - 3):
        nones = steps[i : i + 3]
        calls = steps[i + 3 : i + 5]
        if all(step.opname == "LOAD_CONST" and step.argval is None for step in nones):
            until = next((n for n, step in enumerate(calls) if step.opname == "CALL" and step.arg == 2), None)
            if until is not None:
                found.update(step.offset for step in (*nones, *calls[: until + 1]))
    return frozenset(found)
