"""The names of modules: the standard ones and the family's own, by either of which a module can be called."""

from __future__ import annotations

import re

from cutaway.subject.subject import Subject
from cutaway.vocabulary import HOSTS, SUBLAYERS, Host


def modules_at(subject: Subject, pattern: str) -> dict[str, str]:
    """The modules that a path or pattern picks, by their own paths, each with its path in standard names."""
    table = module_names(subject)
    if pattern in table:
        picked = [table[pattern]]
    else:
        strict, loose = regex(pattern, "[^.]*"), regex(pattern, ".*")
        matches = [name for name in table if strict.fullmatch(name)]
        picked = [table[name] for name in matches or [name for name in table if loose.fullmatch(name)]]
    return {own: _standard_path(subject, own) for own in dict.fromkeys(picked)}


def regex(pattern: str, star: str) -> re.Pattern[str]:
    """A pattern in which `*` is `star`, `**` is anything, `?` is a character, and `[0-2]` one of several."""
    signs = {"**": ".*", "*": star, "?": "[^.]"}
    pieces = re.split(r"(\*\*|\*|\?|\[[^\]]+\])", pattern)
    return re.compile("".join(signs.get(piece) or _one_of(piece) or re.escape(piece) for piece in pieces))


def _one_of(piece: str) -> str:
    if not piece.startswith("[") or not piece.endswith("]"):
        return ""
    return f"[^{piece[2:]}" if piece[1] == "!" else piece


def module_names(subject: Subject) -> dict[str, str]:
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


def in_standard_names(subject: Subject, written: str) -> str:
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
