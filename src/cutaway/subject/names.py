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

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from torch import Tensor

from cutaway.errors import ReadOnlyError, UnavailableValueError, UnknownLayerError, UnknownValueError
from cutaway.subject.address import Address
from cutaway.subject.calls import calls_in
from cutaway.subject.subject import NATIVE_NAMES, Subject
from cutaway.vocabulary import HOSTS, SUBLAYERS, VALUES, WEIGHTS, Host, ValuePath
from cutaway.vocabulary.elsewhere import near
from cutaway.vocabulary.paths import (
    Selector,
    layers_there,
    matching,
    near_paths,
    outside,
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
        spellings = spelled_out(_in_standard_names(subject, written), layers)
        found: list[Name] = []
        for spelling in spellings:
            found += _spelled(subject, spelling)
        if found:
            return list(dict.fromkeys(found))
    raise _unknown(subject, selector)


def _spelled(subject: Subject, spelling: str) -> Sequence[Name]:
    """What a name picks whose layers are counted from the front."""
    head, _, last = spelling.rpartition(".")
    if last in NATIVE_NAMES:
        before, source, calls = f".{head}.".partition(".source.")
        if source:
            return _calls(subject, before.strip("."), calls.strip("."), last)
        return _ends(subject, head, last)
    return matching(spelling, subject.value_paths, subject.sizes["num_layers"])


# Modules.


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


def modules_at(subject: Subject, pattern: str) -> dict[str, str]:
    """The modules that a path or pattern picks, by their own paths, each with its path in standard names."""
    table = _module_names(subject)
    if pattern in table:
        picked = [table[pattern]]
    else:
        strict, loose = _regex(pattern, "[^.]*"), _regex(pattern, ".*")
        matches = [name for name in table if strict.fullmatch(name)]
        picked = [table[name] for name in matches or [name for name in table if loose.fullmatch(name)]]
    return {own: _standard_path(subject, own) for own in dict.fromkeys(picked)}


def _regex(pattern: str, star: str) -> re.Pattern[str]:
    """A pattern in which `*` is `star`, `**` is anything, `?` is a character, and `[0-2]` one of several."""
    signs = {"**": ".*", "*": star, "?": "[^.]"}
    pieces = re.split(r"(\*\*|\*|\?|\[[^\]]+\])", pattern)
    return re.compile("".join(signs.get(piece) or _one_of(piece) or re.escape(piece) for piece in pieces))


def _one_of(piece: str) -> str:
    if not piece.startswith("[") or not piece.endswith("]"):
        return ""
    return f"[^{piece[2:]}" if piece[1] == "!" else piece


def _module_names(subject: Subject) -> dict[str, str]:
    """Every path by which a module can be called, and the module's own path."""
    table: dict[str, str] = {}
    for own in subject.modules:
        table.setdefault(own, own)
    for own in subject.modules:
        for name in _paths(subject, own):
            table.setdefault(name, own)
    for layer in (None, *range(subject.sizes["num_layers"])):
        for host, names in subject.family_at(layer).modules.items():
            for name in (
                names if (host == "model") == (layer is None) else ()
            ):  # where a module of the user's stands between, by the path without it
                own, above = subject.module_path(host, layer, name), HOSTS[host].format(layer=layer)
                if own in subject.modules:
                    table.setdefault(".".join(filter(None, (above, name))), own)
    return table


def _paths(subject: Subject, own: str) -> list[str]:
    """A module's paths below its host: with its standard name, where it has one, and with the family's own."""
    host, layer, rest = host_of(subject, own)
    above = HOSTS[host].format(layer=layer)
    spellings = [rest]
    for standard, native in subject.family_at(layer).modules.get(host, {}).items():
        if rest == native or rest.startswith(f"{native}."):
            spellings.insert(0, standard + rest.removeprefix(native))
    return [".".join(filter(None, (above, spelling))) for spelling in spellings]


def _standard_path(subject: Subject, own: str) -> str:
    return _paths(subject, own)[0]


def host_of(subject: Subject, own: str) -> tuple[Host, int | None, str]:
    """The host on which a module is or hangs, by the module's own path, and the rest of the path below it."""
    names = subject.family.modules
    within = f"{names['model']['layers']}."
    number, _, rest = own.removeprefix(within).partition(".")
    if not own.startswith(within) or not number.isdigit():
        return "model", None, own
    names = subject.family_at(int(number)).modules
    for host, standard in SUBLAYERS.items():
        native = names["layer"].get(standard, standard)
        if native and (rest == native or rest.startswith(f"{native}.")):
            return host, int(number), rest.removeprefix(native).removeprefix(".")
    return "layer", int(number), rest


def _in_standard_names(subject: Subject, written: str) -> str:
    """A name in which the hosts are called as in the vocabulary, whatever the family calls them."""
    native = subject.family.modules["model"]["layers"]
    if written.startswith((f"{native}.", f"{native}[")):
        written = "layers" + written.removeprefix(native)
    found = re.match(r"layers(\.[^.]+|\[[^\]]*\])\.([^.]+)\.", written)
    if found is None:
        return written
    standard = _standard_sublayer(subject, found[2], found[1].strip(".[]"))
    return f"layers{found[1]}.{standard}.{written[found.end() :]}" if standard else written


def _standard_sublayer(subject: Subject, own: str, layer: str) -> str:
    """The standard name of the sublayer that a family calls so, on the layer of this number, or on any; empty where
    there is none, or the name is the standard one of a sublayer that is there."""
    total = subject.sizes["num_layers"]
    number = int(layer) % total if re.fullmatch(r"-?\d+", layer) and total else None
    families = [subject.family_at(one) for one in (range(total) if number is None else (number,))]
    if any(own in family.modules["layer"] for family in families if own in SUBLAYERS.values()):
        return ""
    names = (name for family in families for name in SUBLAYERS.values() if family.modules["layer"].get(name) == own)
    return next(names, "")


# Calls inside a forward.


def _calls(subject: Subject, module: str, calls: str, edge: str) -> list[ModuleName]:
    """The calls that a path behind `.source` picks: `self_q_proj_0`, or inside a function that one calls,
    `attention_interface_0.source.softmax_0`."""
    found: list[ModuleName] = []
    for own, standard in modules_at(subject, module).items():
        chains: list[tuple[str, ...]] = [()]
        for step in calls.split(".source."):
            pattern = _regex(step, "[^.]*")
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


# What nobody knows.


def _unknown(subject: Subject, selector: str) -> Exception:
    """The error for a name that picks nothing."""
    layers = subject.sizes["num_layers"]
    spellings = spelled_out(_in_standard_names(subject, selector), layers)
    if not spellings:
        return UnknownLayerError(f"'{selector}' picks no layer.{layers_there(layers)}")
    spelling = spellings[0]
    head, _, last = spelling.rpartition(".")
    if last in VALUES:
        return _unknown_value(subject, selector, spelling, last)
    if last in WEIGHTS:
        where = HOSTS[WEIGHTS[last].host].format(layer="i").replace(".i", "[i]")
        path = ".".join(filter(None, ("model", where, last)))
        return UnknownValueError(f"'{selector}' is a weight, and no value of a pass: `{path}` is there without one.")
    if last in NATIVE_NAMES:
        return _unknown_module(subject, selector, spelling)
    exact = modules_at(subject, spelling)
    if exact:
        return UnknownValueError(_is_a_module(subject, selector, exact))
    for own, standard in modules_at(subject, head).items():
        if isinstance(getattr(subject.modules[own], last, None), Tensor):
            path = re.sub(r"\.(\d+)", r"[\1]", f"model.{standard}".rstrip("."))
            return UnknownValueError(f"'{selector}' is a parameter: `{path}.{last}` is there without a pass.")
    if selector in subject.sizes:
        return UnknownValueError(f"'{selector}' is a size, and no value of a pass: `model.{selector}`.")
    return UnknownValueError(f"nothing is called '{selector}'.{near_paths(selector, subject.value_paths, layers)}")


def _unknown_value(subject: Subject, selector: str, spelling: str, last: str) -> Exception:
    if not subject.has_site(last):
        return UnavailableValueError(f"{selector} does not exist here. {subject.why_unavailable(last)}")
    lacking = [
        ValuePath(last, layer)
        for layer in range(subject.sizes["num_layers"])
        if VALUES[last].host != "model" and not subject.is_available(ValuePath(last, layer))
    ]
    if any(spelling in (str(path), last) for path in lacking):
        have = sorted({path.layer for path in subject.value_paths if path.name == last and path.layer is not None})
        where = f"it is on layers {', '.join(map(str, have))}" if have else "no layer has it"
        first = next(path for path in lacking if spelling in (str(path), last))
        return UnavailableValueError(f"{selector} does not exist here; {where}. {subject.why_missing(first)}")
    layers = subject.sizes["num_layers"]
    error = UnknownLayerError if outside(spelling, layers) else UnknownValueError
    return error(f"nothing is called '{selector}'.{near_paths(spelling, subject.value_paths, layers)}")


def _unknown_module(subject: Subject, selector: str, spelling: str) -> Exception:
    head, _, last = spelling.rpartition(".")
    before, _, calls = f".{head}.".partition(".source.")
    path = before.strip(".")
    if outside(spelling, subject.sizes["num_layers"]):
        there = layers_there(subject.sizes["num_layers"])
        return UnknownLayerError(f"there is no module `{selector.rpartition('.')[0]}`.{there}")
    for own, standard in modules_at(subject, path).items():
        asked, named_so = calls.strip("."), [call.name for call in calls_in(subject, own, standard).operations]
        hint = near(asked, named_so) or f" There are: {', '.join(named_so)}."
        return UnknownValueError(f"no call in the forward of `{standard}` is named '{asked}'.{hint}")
    named_so = [name for name in _module_names(subject) if name.endswith(f".{path.rpartition('.')[2]}")]
    same = [name for name in named_so if _numbers(name) == _numbers(path)]
    if named_so and not same and not _numbers(path):
        same = [re.sub(r"\.\d+", ".*", min(named_so, key=len), count=1)]
    hint = f" Did you mean '{min(same, key=len)}.{last}'?" if same else near(path, _module_names(subject))
    return UnknownValueError(f"there is no module `{path}`.{hint}")


def _numbers(path: str) -> list[str]:
    return [part for part in path.split(".") if part.isdigit()]


def _is_a_module(subject: Subject, selector: str, picked: Mapping[str, str]) -> str:
    own = next(iter(picked))
    host, layer, rest = host_of(subject, own)
    values = [path for path in subject.value_paths if path.value.host == host and path.layer == layer and not rest]
    base = selector.rstrip(".")
    more = f", or a value of it: '{base}.{values[-1].name}'" if values else ""
    return f"'{selector}' is a module. Say what of it: '{base}.output', '{base}.input' or '{base}.inputs'{more}."
