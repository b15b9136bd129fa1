"""Names: what a user writes, and what of one model it picks. Reading, hooks and the command line share this language.

- a value: by its bare name (`mlp_output`, wherever it hangs), its path, or a pattern, in which `*` stands for anything;
- a module's `input`, `inputs` or `output`: `layers.0.mlp.fc1.output`. A `*` stands for one part of the path, or where
  that picks nothing, for several; `**` always for several;
- a call inside a forward: `layers.1.self_attn.source.self_q_proj_0.output`;
- a function that is given a value's path and says whether to take it.

Modules answer to their standard and to the family's own names, in all places. Layers may be counted from the end, be
taken in slices, and be written as in an expression: `layers.-1`, `layers.1:3`, `layers[1:3]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from cutaway.errors import ReadOnlyError, UnavailableValueError, UnknownValueError
from cutaway.subject.address import Address
from cutaway.subject.binding import NATIVE_NAMES
from cutaway.subject.calls import calls_in
from cutaway.subject.module_names import in_standard_names, modules_at, regex
from cutaway.subject.subject import Subject
from cutaway.subject.unknown_names import unknown_name
from cutaway.vocabulary import ValuePath
from cutaway.vocabulary.paths import (
    Selector,
    matching,
    picks_one,
    select_paths,
    spelled_out,
)


@dataclass(frozen=True)
class ModuleName:
    """A module's own `input`, `inputs` or `output`, or that of a call inside its forward.

    Attributes:
        path: its one path, in standard names where there are any.
        module_path: the module's own path.
        edge: which of the three.
        chain: the call, as in `OperationMoment`; empty for the module itself.
    """

    path: str
    module_path: str
    edge: str
    chain: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.path


Name = ValuePath | ModuleName
"""One thing that can be asked of a pass."""


@dataclass(frozen=True)
class Picked:
    """What several selectors pick.

    Attributes:
        names: each once, in the order of the pass.
        asked: for each selector, the paths of what it picks: one where it is written as a path, or else several.
    """

    names: tuple[Name, ...]
    asked: Mapping[str, str | tuple[str, ...]]


def pick(subject: Subject, selectors: Iterable[Selector]) -> Picked:
    """What selectors pick of a model, in the order of its pass.

    Raises:
        UnknownValueError: a selector picks nothing; near names are listed.
        UnavailableValueError: it names something that this model does not have; the message says why.
    """
    found: dict[Name, None] = {}
    asked: dict[str, str | tuple[str, ...]] = {}
    for selector in selectors:
        names = named(subject, selector)
        found.update(dict.fromkeys(names))
        if isinstance(selector, str):
            one = len(names) == 1 and picks_one(selector)
            asked[selector] = str(names[0]) if one else tuple(map(str, names))
    return Picked(tuple(sorted(found, key=lambda name: _rank(subject, name))), asked)


def address_of(subject: Subject, name: Name) -> Address:
    """Where what a name stands for is in this model.

    Raises:
        UnavailableValueError: this model does not have it.
    """
    if isinstance(name, ValuePath):
        return subject.address(name)
    if name.chain:
        return subject.operation_address(name.module_path, name.path.rpartition(".")[0], name.chain, name.edge)
    return subject.native_address(name.module_path, name.path.rpartition(".")[0], name.edge)


def addresses(subject: Subject, selector: Selector) -> list[Address]:
    """Where what a selector picks is, for editing.

    Raises:
        UnknownValueError, UnavailableValueError: as in `pick`.
        ReadOnlyError: it picks a derived value.
    """
    names = named(subject, selector)
    for name in names:
        if isinstance(name, ValuePath) and name.value.derived:
            refuse_derived(name)
    return [address_of(subject, name) for name in names]


def refuse_derived(path: ValuePath) -> None:
    """Raises a `ReadOnlyError`: a derived value cannot be edited."""
    sources = " and ".join(f"`{source}`" for source in path.sources if not source.value.read_only)
    instead = f"{sources}. Edit that in its stead." if sources else "the call."
    raise ReadOnlyError(f"`{path}` can be read and not edited: it is derived from {instead}")


def _rank(subject: Subject, name: Name) -> float:
    """Where in the pass it comes. A call inside a forward is put at the forward's end; a pass alone tells more."""
    if isinstance(name, ValuePath):
        return subject.rank(name)
    edge = "exit" if name.chain else NATIVE_NAMES[name.edge][0]
    return subject.survey.order.get((name.module_path, edge), len(subject.survey.order)) - bool(name.chain) / 2


def named(subject: Subject, selector: Selector) -> list[Name]:
    """What one selector picks; see `pick`."""
    if not isinstance(selector, str):
        if not callable(selector):
            raise UnknownValueError(f"a name is a string or a function of a path; it was given {selector!r}.")
        return list(select_paths([selector], subject.value_paths))
    known = _known.setdefault(subject, {})
    key = (selector, subject.has_weights)
    if key not in known:
        known[key] = tuple(_named(subject, selector))
    return list(known[key])


_known: WeakKeyDictionary[Subject, dict[tuple[str, bool], tuple[Name, ...]]] = WeakKeyDictionary()
"""What has been looked up before."""


def _named(subject: Subject, selector: str) -> Sequence[Name]:
    layers = subject.sizes["num_layers"]
    for written in dict.fromkeys((selector, selector.removeprefix("model."))):  # as in an expression: `model.logits`
        spellings = spelled_out(in_standard_names(subject, written), layers)
        found: list[Name] = []
        for spelling in spellings:
            found += _spelled(subject, spelling)
        if found:
            return list(dict.fromkeys(found))
    raise unknown_name(subject, selector)


def _spelled(subject: Subject, spelling: str) -> Sequence[Name]:
    """What a name picks whose layers are counted from the front."""
    head, _, last = spelling.rpartition(".")
    if last in NATIVE_NAMES:
        before, source, calls = f".{head}.".partition(".source.")
        if source:
            return _calls(subject, before.strip("."), calls.strip("."), last)
        return _ends(subject, head, last)
    return matching(spelling, subject.value_paths, subject.sizes["num_layers"])


# Modules, and calls inside a forward.


def _ends(subject: Subject, pattern: str, edge: str) -> list[ModuleName]:
    """The inputs or outputs of the modules that a pattern picks, as far as a pass comes by them."""
    there = [
        ModuleName(f"{standard}.{edge}".lstrip("."), own, edge)
        for own, standard in modules_at(subject, pattern).items()
    ]
    passed = [name for name in there if (name.module_path, NATIVE_NAMES[edge][0]) in subject.survey.order]
    if there and not passed:
        raise UnavailableValueError(
            f"`{there[0]}` does not exist here: a pass of this model does not call `{there[0].module_path}`."
        )
    return passed


def _calls(subject: Subject, module: str, calls: str, edge: str) -> list[ModuleName]:
    """The calls that a path behind `.source` picks: `self_q_proj_0`, or inside a function that one calls,
    `attention_interface_0.source.softmax_0`."""
    found: list[ModuleName] = []
    for own, standard in modules_at(subject, module).items():
        chains: list[tuple[str, ...]] = [()]
        for step in calls.split(".source."):
            pattern = regex(step, "[^.]*")
            chains = [
                (*chain, call.name)
                for chain in chains
                for call in calls_in(subject, own, ".".join((standard, "source", *chain)), chain).operations
                if pattern.fullmatch(call.name)
            ]
        for chain in chains:
            path = ".".join(filter(None, (standard, "source", ".source.".join(chain), edge)))
            found.append(ModuleName(path, own, edge, chain))
    return found
