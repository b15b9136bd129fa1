"""A derived family as the text of a file, to start one by hand from."""

from __future__ import annotations

import copy
import json
import pprint
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from cutaway.errors import InputError
from cutaway.families.derivation.derive import derive
from cutaway.families.family import Family, Kind, setting, uncommon_settings
from cutaway.families.stream import Normed, Times
from cutaway.families.usual import USUAL_SITES
from cutaway.sites import STREAMS, OperationMoment, Site
from cutaway.vocabulary import MODULES, VALUES

_STEP = "    "


def propose(model: PreTrainedModel | PretrainedConfig) -> str:
    """The file's text; see `cutaway.families.propose`."""
    hf = _without_weights(model) if isinstance(model, PretrainedConfig) else getattr(model, "hf", model)
    if not isinstance(hf, PreTrainedModel):
        what = model.__name__ if isinstance(model, type) else f"a {type(model).__name__}"
        raise InputError(
            f"a family is drafted of a transformers model, or a config; it was given {what}. Load it first: "
            "`AutoModelForCausalLM.from_pretrained(…)`, or `AutoConfig.from_pretrained(…)` without the weights."
        )
    return written(derive(hf), hf.config, type(hf))


def _without_weights(config: PretrainedConfig) -> PreTrainedModel:
    with torch.device("meta"):
        made: Any = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    return made.eval()


def written(family: Family, config: Any, of: type[PreTrainedModel]) -> str:
    """A family as Python source."""
    name = family.name.replace("-", "_")
    body = list(_body(family, config))
    text = "\n".join(body)
    words = {word for word in ("Family", "Kind", "normed", "times") if f"{word}(" in text or word == "Family"}
    imports = sorted(_imported(family))
    lines = [
        f'"""{of.__name__}: found in a pass of it. Compare it with transformers\' source, line by line.',
        "",
        f"{of.__module__.replace('.', '/')}.py",
        '"""',
        "",
        f"from cutaway.families import {', '.join(sorted(words))}",
        *(["from cutaway.families.usual import USUAL_SITES"] if "USUAL_SITES" in text else []),
        f"from cutaway.sites import {', '.join(imports)}",
        "",
        f"{name.upper()} = Family(",
        f'    name="{name}",',
        f"    architectures={_quoted(family.architectures)},",
        "    checkpoints=(),  # to check: well-known checkpoints, by their hub ids",
        *body,
        ")",
        "",
    ]
    return "\n".join(line for line in lines if line != "from cutaway.sites import ")


def _body(family: Family, config: Any) -> Iterator[str]:
    yield from _modules("modules", family.modules, _STEP)
    yield f"{_STEP}sizes={{"
    for name, key in _stated(family).items():
        note = "" if isinstance(key, str) else "  # to check: no key of the config says so"
        yield f'{_STEP * 2}"{name}": {_quoted(key)},{note}'
    yield f"{_STEP}}},"
    yield from _values(family.values, _STEP, usual=not family.kinds)
    yield from _reasons(family.unavailable, _STEP)
    yield f"{_STEP}stream={_expression(family.stream, config)},"
    if family.no_sum:
        yield f"{_STEP}no_sum={_quoted(family.no_sum)},"
    if family.premix_differs:
        yield f"{_STEP}premix_differs={_quoted(family.premix_differs)},"
    if family.no_lens:
        yield f"{_STEP}no_lens={_quoted(family.no_lens)},"
    if family.kinds:
        yield f"{_STEP}kinds=("
        for kind in family.kinds:
            yield from _kind(kind, config)
        yield f"{_STEP}),"
    if family.positions_from_mask:
        yield f"{_STEP}positions_from_mask=True,  # to check: some models count positions from the mask by themselves"
    yield from _settings(family, config)


def _kind(kind: Kind, config: Any) -> Iterator[str]:
    step = _STEP * 3
    yield f"{_STEP * 2}Kind("
    yield f"{step}name={_quoted(kind.name)},"
    if kind.has:
        yield f"{step}has={_quoted(kind.has)},  # here layers {', '.join(map(str, sorted(kind.layers)))}"
    else:
        yield f"{step}# to check: a module by which these layers are told, `has=`, would serve every checkpoint."
        yield f"{step}layers=frozenset({sorted(kind.layers)}),"
    if kind.modules:
        yield from _modules("modules", kind.modules, step)
    if kind.values:
        yield from _values(kind.values, step, usual=False)
    if kind.unavailable:
        yield from _reasons(kind.unavailable, step)
    if kind.lacks:
        yield f"{step}lacks={_quoted(kind.lacks)},"
    if kind.stream is not None:
        yield f"{step}stream={_expression(kind.stream, config)},"
    if kind.no_sum:
        yield f"{step}no_sum={_quoted(kind.no_sum)},"
    yield f"{_STEP * 2}),"


def _modules(word: str, modules: Mapping[Any, Mapping[str, str]], step: str) -> Iterator[str]:
    yield f"{step}{word}={{"
    for host, names in modules.items():
        ordered = {name: names[name] for name in MODULES if name in names}
        yield f'{step}{_STEP}"{host}": {{'
        yield from (f'{step}{_STEP * 2}"{name}": "{own}",' for name, own in ordered.items())
        yield f"{step}{_STEP}}},"
    yield f"{step}}},"


def _values(values: Mapping[str, Site], step: str, *, usual: bool) -> Iterator[str]:
    """The sites; where most of all are the usual ones, those that differ."""
    shared = {name for name, site in values.items() if USUAL_SITES.get(name) == site}
    takes_over = usual and shared == set(USUAL_SITES) & set(values) and set(USUAL_SITES) <= set(values)
    yield f"{step}values={{"
    if takes_over:
        yield f"{step}{_STEP}**USUAL_SITES,"
    for name in (name for name in VALUES if name in values):
        if not (takes_over and name in shared):
            yield f'{step}{_STEP}"{name}": {site_code(values[name])},'
    yield f"{step}}},"


def _reasons(reasons: Mapping[str, str], step: str) -> Iterator[str]:
    yield f"{step}unavailable={{"
    for name, why in reasons.items():
        yield f"{step}{_STEP}{_quoted(name)}: {_quoted(why)},  # to check"
    yield f"{step}}},"


def site_code(site: Site) -> str:
    """A site in the words of a family file."""
    slot, moment = site.slot, site.moment
    more: dict[str, Any] = {}
    if isinstance(moment, OperationMoment):
        raise NotImplementedError("a call inside a forward is placed by hand")
    if moment in ("enter", "token rows in"):
        more = {"argument": slot.key, "split": slot.split, "of": site.of, "rows": moment != "enter"}
        more["is_first"] = slot.is_first
        defaults: dict[str, Any] = {"argument": "hidden_states", "is_first": True}
        return _call("input_of", site.module, more, defaults)
    if moment in ("exit", "token rows out"):
        more = {"key": slot.key, "split": slot.split, "of": site.of, "rows": moment != "exit", "swapped": slot.swapped}
        return _call("output_of", site.module, more, {"key": 0})
    if moment in STREAMS:
        return _call("stream_at", site.module, {"of": site.of, "rows": moment != "stream"}, {})
    if moment == "arguments":
        given = ", ".join(f'"{word}"' for word in (slot.key, site.module) if word)
        return f"attention_argument({given})"
    if moment == "result":
        return _call("attention_result", site.module, {}, {})
    if moment == "softmax":
        return _call("softmax_input", site.module, {"folded": slot.folded, "sinks": slot.columns == "keys"}, {})
    if slot.columns == "sink":
        return _call("sink", site.module, {}, {})
    more = {"folded": slot.folded, "dropout": moment == "pattern"}
    return _call("pattern", site.module, more, {"dropout": True})


def _call(function: str, module: str, more: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    given = [f'"{module}"'] if module else []
    for name, value in more.items():
        if value != defaults.get(name, type(value)() if value is not None else None):
            given.append(f"{name}={_quoted(value)}")
    return f"{function}({', '.join(given)})"


def _quoted(value: Any) -> str:
    if isinstance(value, tuple):
        parts = [_quoted(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _stated(family: Family) -> dict[str, str | int]:
    """The sizes, without those that follow from the rest."""
    sizes = dict(family.sizes)
    for name, other in (("num_kv_heads", "num_heads"), ("qk_head_dim", "head_dim")):
        if name in sizes and sizes[name] == sizes.get(other):
            del sizes[name]
    return sizes


def _imported(family: Family) -> set[str]:
    """The functions of `cutaway.sites` that the file calls."""
    lines = [*_values(family.values, "", usual=not family.kinds)]
    for kind in family.kinds:
        lines += _values(kind.values, "", usual=False)
    return {line.split(": ")[1].partition("(")[0] for line in lines if ": " in line}


def _expression(term: Any, config: Any) -> str:
    if isinstance(term, str):
        return f'"{term}"'
    if isinstance(term, Times):
        by = term.by if term.learned else _key(float(term.by), config)
        learned = ", learned=True" if term.learned else ""
        return f"times({_expression(term.term, config)}, {_quoted(by)}{learned})"
    if isinstance(term, Normed):
        return f"normed({_expression(term.term, config)}, {_quoted(term.by)})"
    parts = [_expression(part, config) for part in term]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _key(number: float, config: Any) -> float | str:
    """The one key of a config that says a factor; the number where none or several do."""
    keys = [key for key in config.to_dict() if "multiplier" in key or "scal" in key]
    found = [key for key in keys if setting(config, key) == number]
    return found[0] if len(found) == 1 else number


def _settings(family: Family, config: PretrainedConfig) -> Iterator[str]:
    yield f"{_STEP}# to check: each may change what a value means; then the file must say how, or refuse it."
    yield f"{_STEP}settings=frozenset("
    yield f"{_STEP * 2}{{"
    for key in sorted(uncommon_settings(config) - set(family.config_keys())):
        shown = pprint.pformat(setting(config, key), compact=True).replace("\n", " ")
        yield f'{_STEP * 3}"{key}",  # here {shown if len(shown) < 60 else f"{shown[:57]}..."}'
    yield f"{_STEP * 2}}}"
    yield f"{_STEP}),"
