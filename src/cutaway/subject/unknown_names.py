"""What is said of a name that picks nothing in a model: what it is instead, or which names are near."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from cutaway.errors import UnavailableValueError, UnknownLayerError, UnknownValueError
from cutaway.subject.binding import NATIVE_NAMES
from cutaway.subject.calls import calls_in
from cutaway.subject.module_names import host_of, in_standard_names, module_names, modules_at
from cutaway.subject.subject import Subject
from cutaway.subject.weights import weight_path
from cutaway.vocabulary import HOSTS, MODULES, SUBLAYERS, VALUES, WEIGHTS, Host, ValuePath
from cutaway.vocabulary.elsewhere import near
from cutaway.vocabulary.paths import layers_there, near_paths, outside, spelled_out


def unknown_name(subject: Subject, selector: str) -> Exception:
    """The error for a name that picks nothing."""
    layers = subject.sizes["num_layers"]
    spellings = spelled_out(in_standard_names(subject, selector), layers)
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
    named_so = [name for name in module_names(subject) if name.endswith(f".{path.rpartition('.')[2]}")]
    same = [name for name in named_so if _numbers(name) == _numbers(path)]
    if named_so and not same and not _numbers(path):
        same = [re.sub(r"\.\d+", ".*", min(named_so, key=len), count=1)]
    hint = f" Did you mean '{min(same, key=len)}.{last}'?" if same else near(path, module_names(subject))
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


def unknown_on_host(subject: Subject, host: Host, layer: int | None, name: str) -> Exception:
    """The error for a name that a host does not have, with near names or the host that has it."""
    where = HOSTS[host].format(layer=layer) or "the model"
    if name in WEIGHTS and WEIGHTS[name].host != host:
        row = WEIGHTS[name]
        example = weight_path(row, (layer or 0) if row.host != "model" else None)
        example = re.sub(r"\.(\d+)", r"[\1]", f"model.{example}")
        return UnknownValueError(f"`{name}` does not hang on {where}; it is a weight of the {row.host}: `{example}`.")
    if name in VALUES:
        owner = VALUES[name].host
        example = ValuePath(name, (layer or 0) if owner != "model" else None)
        return UnknownValueError(f"`{name}` does not hang on {where}; it is a value of the {owner}: `{example}`.")
    here = subject.modules.get(subject.host_path(host, layer))
    children = [child for child, _ in here.named_children()] if here is not None else []
    reach = {
        word.name: _reached(word.host, host, word.name)
        for word in [*VALUES.values(), *MODULES.values(), *WEIGHTS.values()]
    }
    hint = near(name, [*children, *reach], shown=reach, layer=layer)
    return UnknownValueError(f"{where} has no value or module called `{name}`.{hint}")


def _reached(owner: Host, host: Host, name: str) -> str:
    """A name as it is said on a host: `mlp.mlp_output` on a layer; by its whole path where it is not below the host."""
    if owner == host:
        return name
    if host == "layer" and owner in SUBLAYERS:
        return f"{SUBLAYERS[owner]}.{name}"
    path = HOSTS[owner].format(layer="i").replace(".i", "[i]")
    return ".".join(filter(None, ("model", path, name)))
