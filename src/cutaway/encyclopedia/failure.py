"""Why an assertion failed: its condition, and the figures it compares.

`assert` alone says neither. Both are read from the frame in which it failed: the condition from the source, the figures
by asking for the condition's own parts again, where that is still possible.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from cutaway.encyclopedia.figures import shown


@dataclass(frozen=True)
class Failure:
    """What an assertion said, and what was the case.

    Attributes:
        condition: its source, `largest < 1e-3`; empty where there is none to be had.
        measured: each part of it that is no constant, with the figure it came to.
        message: what the assertion says of itself.
        names: the local variables of the note's function as figures are written, where they can be.
    """

    condition: str
    measured: Mapping[str, str]
    message: str
    names: Mapping[str, str]

    def __str__(self) -> str:
        figures = " and ".join(f"{part} is {figure}" for part, figure in self.measured.items())
        said = "; ".join(filter(None, (figures, self.message)))
        condition = f"`assert {self.condition}` fails" if self.condition else "an assertion fails"
        return f"{condition}{f': {said}' if said else ''}."


def failure_of(error: AssertionError, function: Any) -> Failure:
    """Reads what failed from an error that a function raised."""
    frame, line, own = None, 0, None
    at = error.__traceback__
    while at is not None:
        frame, line = at.tb_frame, at.tb_lineno
        own = frame if frame.f_code is getattr(function, "__code__", None) else own
        at = at.tb_next
    message = " ".join(str(error).split()).rstrip(".")
    names = {name: shown(value) for name, value in (own.f_locals if own else {}).items() if _is_figure(value)}
    test = _condition(frame, line) if frame is not None else None
    if frame is None or test is None:
        return Failure("", {}, message, names)
    return Failure(ast.unparse(test), dict(_measured(test, frame)), message, names)


def _condition(frame: FrameType, line: int) -> ast.expr | None:
    """The condition of the `assert` that stands on a line."""
    text = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    return next((node.test for node in asserts if node.lineno <= line <= (node.end_lineno or node.lineno)), None)


def _measured(test: ast.expr, frame: FrameType) -> Iterator[tuple[str, str]]:
    match test:
        case ast.BoolOp():
            for part in test.values:
                yield from _measured(part, frame)
        case ast.UnaryOp(op=ast.Not()):
            yield from _measured(test.operand, frame)
        case ast.Compare():
            for part in (test.left, *test.comparators):
                if not isinstance(part, ast.Constant):
                    yield from _told(part, frame)
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() as each]):
            held = _again(ast.ListComp(each.elt, each.generators), frame)
            if isinstance(held, list):
                yield f"`{ast.unparse(each.elt)}`", f"so of {sum(map(bool, held))} of {len(held)}"
        case ast.Call(func=ast.Attribute(attr="equal" | "allclose"), args=[first, second, *_]):
            yield from _apart(first, second, frame)
        case _:
            yield from _told(test, frame)


def _told(part: ast.expr, frame: FrameType) -> Iterator[tuple[str, str]]:
    value = _again(part, frame)
    if value is not _GONE:
        yield ast.unparse(part), _short(value)


def _apart(first: ast.expr, second: ast.expr, frame: FrameType) -> Iterator[tuple[str, str]]:
    """How far two tensors are apart that were to be the same."""
    import torch

    one, other = _again(first, frame), _again(second, frame)
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return
    if one.shape != other.shape:
        yield ast.unparse(first), _short(one)
        yield ast.unparse(second), _short(other)
    elif one.numel():
        yield "their largest difference", shown(float((one.double() - other.double()).abs().max()))


class _Gone:
    pass


_GONE = _Gone()
"""Stands for what cannot be asked for any more, a value of a trace that is over say."""


def _again(part: ast.expr, frame: FrameType) -> Any:
    expression = ast.fix_missing_locations(ast.Expression(part))
    # A comprehension sees what it is evaluated in as globals alone.
    words = {**frame.f_globals, **frame.f_locals}
    try:
        return eval(compile(expression, "<note>", "eval"), words)
    except Exception:
        return _GONE


def _is_figure(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_figure, value))
    return isinstance(value, (bool, int, float, str))


def _short(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        shape = " ".join(map(str, value.shape))
        return shown(value.item()) if value.numel() == 1 else f"a tensor [{shape}]"
    text = shown(value) if isinstance(value, (bool, int, float)) else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
