"""Modules that stand in several places of a model, and telling in which of them one is called.

A hook hangs on a module, so where two layers share an MLP it is called in both. Which place a call belongs to follows
from the call that it is made in: of the places right below that one, the first that this call has not come by yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import greenlet
from torch import nn

from cutaway.tracing.attach import Answers, Attachment, attach, remove_all

Paths = Mapping[nn.Module, Sequence[str]]
"""The paths of modules, each module's in the order of the model."""


class Whereabouts:
    """The calls under way in one pass, by path, and where each module was called last."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._callers = {
            path
            for module, own in paths.items()
            for path in own
            if not isinstance(module, (nn.ModuleList, nn.ModuleDict))
        }
        self._stack: list[tuple[str, set[str]]] = []
        self._last: dict[nn.Module, str] = {}

    @property
    def path(self) -> str:
        """The path of the call under way; empty for the model's own, and before it."""
        return self._stack[-1][0] if self._stack else ""

    def enter(self, module: nn.Module) -> bool:
        """Notes a call; False if it is one more than the module has places there."""
        above, seen = self._stack[-1] if self._stack else ("", set[str]())
        below = [path for path in self._paths[module] if path.startswith(f"{above}.") or not above]
        below = [path for path in below if self._caller(path) == above] or below
        fresh = [path for path in below if path not in seen]
        path = (fresh or below or self._paths[module])[0]
        self._last[module] = path
        seen.add(path)
        self._stack.append((path, set()))
        return bool(fresh)

    def _caller(self, path: str) -> str:
        """The nearest path above, at which a module stands that can be called."""
        above = path.rpartition(".")[0]
        while above and above not in self._callers:
            above = above.rpartition(".")[0]
        return above

    def leave(self, module: nn.Module) -> None:
        """Notes the end of a call; where it was stays known until the next."""
        self._stack.pop()

    def last(self, module: nn.Module) -> str:
        """The path under which a module was called last."""
        return self._last.get(module, "")


class Occurrences:
    """Follows the calls of shared modules, and of what calls them, for as long as passes are watched.

    Args:
        root: the whole model, with whose call each pass begins.
        paths: those of the shared modules, and of the modules that they are called in.
        answers: which passes are followed; each greenlet's is followed on its own.
    """

    def __init__(self, root: nn.Module, paths: Paths, answers: Answers) -> None:
        self._root = root
        self._answers = answers
        self._paths = paths
        self._passes: WeakKeyDictionary[greenlet.greenlet, Whereabouts] = WeakKeyDictionary()
        self._attachments: list[Attachment] = []

    def put_on(self) -> None:
        """Begins to follow."""
        attach(self._root, "enter", self._begin, self._answers, self._attachments)
        for module in self._paths:
            attach(module, "enter", partial(self._enter, module), self._answers, self._attachments)
            attach(module, "exit", partial(self._leave, module), self._answers, self._attachments)

    def at(self, module: nn.Module, path: str) -> Callable[[], bool] | None:
        """Whether the module's call under way is the one at a path; None where it has that place alone."""
        places = self._paths.get(module, ())
        if len(places) < 2 or path not in places:
            return None
        return lambda: self._here().last(module) == path

    def remove(self) -> None:
        """Follows no more."""
        remove_all(self._attachments)

    def _here(self) -> Whereabouts:
        return self._passes.setdefault(greenlet.getcurrent(), Whereabouts(self._paths))

    def _begin(self, _call: Any) -> None:
        self._passes[greenlet.getcurrent()] = Whereabouts(self._paths)

    def _enter(self, module: nn.Module, _call: Any) -> None:
        self._here().enter(module)

    def _leave(self, module: nn.Module, _output: Any) -> None:
        self._here().leave(module)


def both(answers: Answers, other: Callable[[], bool] | None) -> Answers:
    """Both conditions in one."""
    return answers if other is None else lambda: answers() and other()


def paths_of(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Every path of every module of a model."""
    paths: dict[nn.Module, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(module, []).append(path)
    return paths


def shared_paths(paths: Mapping[nn.Module, Sequence[str]], callers: Iterable[str]) -> dict[nn.Module, Sequence[str]]:
    """Of all modules' paths, those of modules that have several, and of the modules at `callers`."""
    wanted = set(callers)
    return {module: own for module, own in paths.items() if len(own) > 1 or not wanted.isdisjoint(own)}
