"""How a layer is wired, read from its family and from a pass: which sublayers stand side by side, through
which norms each reads and returns, and in which order its terms are added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cutaway.families.stream import Normed, Sum, Term, Times, names_in
from cutaway.sites import Site
from cutaway.vocabulary import SUBLAYERS, VALUES, Host

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.families import Family
    from cutaway.subject.subject import Subject

STREAM = "layer_input"
"""The term that is the stream itself."""

_ENTERING: dict[Host, tuple[str, ...]] = {
    "attention": ("attention_norm_output",),
    "mixer": ("mixer_norm_output",),
    "mlp": ("mlp_norm_output", "mlp_input"),
}
"""Values on the way into each sublayer, the norm's output first."""


@dataclass(frozen=True)
class Branch:
    """A sublayer between the stream and the sum.

    Attributes:
        host: which.
        value: the name of what it adds.
        norm: the norm through which it reads the stream, as a part; empty where it reads the stream itself.
        entering: the values on its way in.
        after: the norm through which it returns; empty where there is none.
    """

    host: Host
    value: str
    norm: str
    entering: tuple[str, ...]
    after: str


@dataclass(frozen=True)
class Operand:
    """What is added: one term, or what several have added up to; and the factor before it, as it is written."""

    names: frozenset[str]
    factor: str = ""

    @property
    def has_stream(self) -> bool:
        """Whether the stream is in it."""
        return STREAM in self.names


@dataclass(frozen=True)
class Addition:
    """One addition of a sum, with its number in the order in which they are made.

    `norm` is the norm through which its result goes, as a part; empty where there is none.
    """

    number: int
    left: Operand
    right: Operand
    norm: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The terms in its result."""
        return self.left.names | self.right.names


@dataclass(frozen=True)
class Stage:
    """Sublayers that read the same stream, and the additions after them."""

    branches: tuple[Branch, ...]
    additions: tuple[Addition, ...]

    @property
    def shared_norm(self) -> str:
        """The norm that feeds all of them, where several are fed by one."""
        norms = {branch.norm for branch in self.branches}
        return min(norms) if len(self.branches) > 1 and len(norms) == 1 else ""


@dataclass(frozen=True)
class Wiring:
    """A layer: its stages from top to bottom, and the sum that they come to; `no_sum` says why there is none."""

    stages: tuple[Stage, ...]
    stream: Sum
    no_sum: str = ""

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Every sublayer, in the order of a pass."""
        return tuple(branch for stage in self.stages for branch in stage.branches)

    @property
    def parallel(self) -> bool:
        """Whether sublayers stand side by side."""
        return any(len(stage.branches) > 1 for stage in self.stages)

    @property
    def additions(self) -> tuple[Addition, ...]:
        """Every addition, in the order in which they are made."""
        return tuple(sorted((a for stage in self.stages for a in stage.additions), key=lambda one: one.number))


def wiring_at(subject: Subject, layer: int) -> Wiring:
    """How a layer is wired."""
    family = subject.family_at(layer)
    added = list(names_in(family.stream)) or [name for name in _ADDED if name in family.values]
    order = [VALUES[name].host for name in _ADDED]
    terms = sorted((name for name in added if name != STREAM), key=lambda name: order.index(VALUES[name].host))
    additions = list(additions_of(family.stream))
    groups: list[list[Branch]] = []
    for branch in (_branch(family, name) for name in terms):
        beside = groups and (
            _are_added(groups[-1], branch, additions) or _read_alike(subject, layer, groups[-1][0], branch)
        )
        if beside:
            groups[-1].append(branch)
        else:
            groups.append([branch])
    stages: list[Stage] = []
    for group in groups:
        seen = {STREAM, *(branch.value for stage in stages for branch in stage.branches)}
        seen |= {branch.value for branch in group}
        done = [addition for stage in stages for addition in stage.additions]
        now = tuple(a for a in additions if a not in done and a.names <= seen)
        stages.append(Stage(tuple(group), now))
    return Wiring(tuple(stages), family.stream, family.no_sum)


_ADDED = ("attention_output", "mixer_output", "mlp_output")


def additions_of(stream: Sum) -> Iterator[Addition]:
    """The additions of a sum, in the order in which they are made."""
    made: list[Addition] = []

    def operand(term: Term) -> Operand:
        if isinstance(term, str):
            return Operand(frozenset({term}))
        if isinstance(term, Times):
            by = f"{term.by:g}" if isinstance(term.by, (int, float)) else f"{term.by}"
            return Operand(operand(term.term).names, by)
        if isinstance(term, Normed):
            inner = operand(term.term)
            if made and made[-1].names == inner.names:
                made[-1] = replace(made[-1], norm=norm_key(term))
            return inner
        total = operand(term[0])
        for part in term[1:]:
            right = operand(part)
            made.append(Addition(len(made) + 1, total, right))
            total = Operand(made[-1].names)
        return total

    if stream:
        operand(stream)
    yield from made


def norm_key(term: Normed) -> str:
    """The part that a norm of the sum is."""
    return f"layer.{term.by}"


def _branch(family: Family, value: str) -> Branch:
    host = VALUES[value].host
    entering = _ENTERING[host]
    site = family.values.get(entering[0])
    norm = "" if site is None or not site.module else f"layer.{standard_name(family, site.module)}"
    back = family.values[value]
    after = (
        f"layer.{standard_name(family, back.module)}" if back.of == "layer" and _is_beside(family, host, back) else ""
    )
    return Branch(host, value, norm, entering, after)


def _is_beside(family: Family, host: Host, site: Site) -> bool:
    """Whether a sublayer's site is at a module beside it, and not at itself or inside it."""
    own = family.modules["layer"].get(SUBLAYERS[host], SUBLAYERS[host])
    named = {SUBLAYERS[host], own, *family.modules.get(host, {}), *family.modules.get(host, {}).values()}
    return bool(site.module) and site.module not in named and not site.module.startswith(f"{own}.")


def standard_name(family: Family, module: str) -> str:
    """A module of the layer by its standard name, where it has one."""
    return next((name for name, own in family.modules["layer"].items() if own == module), module)


def _are_added(group: list[Branch], branch: Branch, additions: list[Addition]) -> bool:
    """Whether what a sublayer gives is added to what others give before the stream is, so that none waits for it."""
    before = [one.names for one in additions if STREAM not in one.names and branch.value in one.names]
    return any(other.value in names for names in before for other in group)


def _read_alike(subject: Subject, layer: int, first: Branch, other: Branch) -> bool:
    """Whether two sublayers read the same stream, so that none passes between them."""
    family = subject.family_at(layer)
    if "layer_mid" in family.values and other.host == "mlp":
        return False
    if first.norm and first.norm == other.norm:
        return True
    read = partial(_given_to, subject, layer)
    return read(first) is not None and read(first) is read(other)


def _given_to(subject: Subject, layer: int, branch: Branch) -> Tensor | None:
    """The very tensor that a sublayer's norm, or where it has none the sublayer, was given in the survey's pass."""
    host, name = branch.norm.split(".", 1) if branch.norm else ("layer", SUBLAYERS[branch.host])
    assert host == "layer"
    return first_tensor(subject.survey.passing.get((subject.module_path("layer", layer, name), "enter")))


def first_tensor(passing: Any) -> Tensor | None:
    """The first tensor in what passed: an argument by position or by name, or a part of what was returned."""
    from torch import Tensor

    from cutaway.sites.slots import Call

    if isinstance(passing, Call):
        return first_tensor((*passing.args, *passing.kwargs.values()))
    if isinstance(passing, (tuple, list)):
        found = (first_tensor(part) for part in passing)  # pyright: ignore[reportUnknownVariableType]
        return next((tensor for tensor in found if tensor is not None), None)
    return passing if isinstance(passing, Tensor) else None
