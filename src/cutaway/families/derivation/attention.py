"""Inside an attention: queries, keys, values, patterns, projections, by what was called with what."""

from __future__ import annotations

import torch

from cutaway.families.derivation.finder import Finder, standard
from cutaway.families.derivation.modules import is_linear, is_norm
from cutaway.families.derivation.recording import BATCH, SEQ, Called
from cutaway.sites import (
    Site,
    attention_argument,
    attention_result,
    gate_beside,
    input_of,
    output_of,
    pattern,
    sink,
    softmax_input,
)


def attention(finder: Finder) -> None:
    """Finds what is inside the attention, if the block has one."""
    host = finder.host("self_attn")
    if not host:
        return
    names = finder.found.modules.setdefault("attention", {})
    seen = [
        (path, what.shapes)
        for path, what in finder.recording.attended.items()
        if what.shapes and (path == host or path.startswith(f"{host}."))
    ]
    if seen:
        path, shapes = seen[0]
        _interior(finder, path.removeprefix(host).removeprefix("."), shapes)
    else:
        why = "No attention function of transformers' interface was called here, and no softmax was seen."
        finder.found.why.update(dict.fromkeys(_INTERIOR, why))
    _output_projection(finder, host, names)
    _projections(finder, host, names)
    _before_rotary(finder, host)
    _gate(finder, host)


def _interior(finder: Finder, at: str, shapes: dict[str, torch.Size]) -> None:
    values, why, sizes = finder.found.values, finder.found.why, finder.found.sizes
    if "query" in shapes:
        values["attention_queries"] = attention_argument("query", at)
        values["attention_keys"] = attention_argument("key", at)
        values["attention_values"] = attention_argument("value", at)
        values["attention_head_outputs"] = attention_result(at)
        sizes.update(num_heads=shapes["query"][1], qk_head_dim=shapes["query"][-1])
        sizes.update(num_kv_heads=shapes["value"][1], head_dim=shapes["value"][-1])
    else:
        reason = "This attention calls no function of transformers' interface, to which it would be an argument."
        why.update(dict.fromkeys(_INTERIOR[:4], reason))
    scores, after = shapes.get("softmax"), shapes.get("pattern", shapes.get("softmax result"))
    if scores is None or after is None or len(scores) not in (3, 4) or scores[-2] != SEQ:
        reason = "No softmax over keys was seen inside the attention."
        why.update(dict.fromkeys(("attention_scores", "attention_probabilities"), reason))
        return
    folded = "num_heads" if len(scores) == 3 else ""
    heads = scores[0] // BATCH if folded else scores[1]
    sizes.setdefault("num_heads", heads)
    sinks = scores[-1] == SEQ + 1 and after[-1] == SEQ
    if scores[-1] != SEQ and not sinks:
        reason = f"The softmax is over {scores[-1]} entries, and not over the {SEQ} keys alone."
        why.update(dict.fromkeys(("attention_scores", "attention_probabilities"), reason))
        return
    values["attention_scores"] = softmax_input(at, folded=folded, sinks=sinks)
    values["attention_probabilities"] = pattern(at, folded=folded, dropout="pattern" in shapes)
    if sinks:
        values["attention_sinks"] = sink(at)


def _output_projection(finder: Finder, host: str, names: dict[str, str]) -> None:
    sublayer = finder.block.sublayers.get("attention_output")
    sizes = finder.found.sizes
    linears = [call for call in finder.inside(host) if is_linear(call.module)]
    ends = [call for call in linears if sublayer is not None and call.returned is sublayer.call.returned]
    if not ends or ends[-1].given is None:
        return
    end = ends[-1]
    names["o_proj"] = end.path.removeprefix(f"{host}.")
    width, heads = end.given_shape[-1], sizes.get("num_heads", 0)
    if heads and "head_dim" not in sizes and width % heads == 0:
        sizes["head_dim"] = width // heads
    if heads and width == heads * sizes.get("head_dim", 0):
        split = ("num_heads", "head_dim")
        finder.found.values["attention_premix"] = input_of("o_proj", argument=end.argument, split=split)
    elif heads:
        finder.found.why["attention_premix"] = (
            f"The output projection takes {width} numbers a token, and {heads} heads of {sizes.get('head_dim', 0)} "
            "have not as many."
        )


def _projections(finder: Finder, host: str, names: dict[str, str]) -> None:
    call = finder.recording.call_of(host)
    linears = [c for c in finder.inside(host) if is_linear(c.module) and call is not None and c.given is call.given]
    for key, words in _PROJECTIONS.items():
        found = [c for c in linears if c.path.rpartition(".")[2] in words]
        if len(found) == 1:
            names[key] = found[0].path.removeprefix(f"{host}.")


def _before_rotary(finder: Finder, host: str) -> None:
    """Queries and keys as their norms return them, or where there are none, their projections."""
    norms = [call for call in finder.inside(host) if is_norm(call.module)]
    for value, key, heads in (
        ("queries_before_rotary", "q", "num_heads"),
        ("keys_before_rotary", "k", "num_kv_heads"),
    ):
        own = [call for call in norms if call.path.rpartition(".")[2].startswith((f"{key}_", _WORDS[key]))]
        if any(_is_latent(call.path, key) for call in norms):
            own = [call for call in finder.inside(host) if is_linear(call.module) and _is_expanded(call.path, key)]
        own = own or _projection(finder, host, f"{key}_proj", norms)
        attended = [
            seen.nodes[_WORDS[key]]
            for path, seen in finder.recording.attended.items()
            if _WORDS[key] in seen.nodes and (path == host or path.startswith(f"{host}."))
        ]
        if len(own) == 1 and attended and not attended[0].comes_of(own[0].returned):
            if is_norm(own[0].module):
                finder.found.modules["attention"][f"{key}_norm"] = own[0].path.removeprefix(f"{host}.")
            site = _heads_of(finder, own[0], host, heads)
            if site is not None:
                finder.found.values[value] = site
    for call in norms:
        if _is_latent(call.path, "kv") and len(call.shape) == 3:
            finder.found.values["latent_kv"] = output_of(call.path.removeprefix(f"{host}."))
            finder.found.sizes["kv_latent_size"] = call.shape[-1]


def _projection(finder: Finder, host: str, name: str, norms: list[Called]) -> list[Called]:
    """The call of a projection whose result no norm is given."""
    own = finder.found.modules["attention"].get(name)
    found = [call for call in finder.inside(host) if own is not None and call.path == f"{host}.{own}"]
    normed = [norm for norm in norms for call in found if norm.given and norm.given.comes_of(call.returned)]
    return [] if normed else found


def _heads_of(finder: Finder, call: Called, host: str, heads: str) -> Site | None:
    sizes = finder.found.sizes
    count, width = sizes.get(heads), sizes.get("qk_head_dim")
    if not count or not width:
        return None
    shape, own = call.shape, standard(finder.found.modules["attention"], call.path.removeprefix(f"{host}."))
    if shape == (BATCH, count, SEQ, width):
        return output_of(own)
    if shape == (BATCH, SEQ, count, width):
        return output_of(own, swapped=True)
    if shape == (BATCH, SEQ, count * width):
        return output_of(own, split=(heads, "qk_head_dim"), swapped=True)
    return None


def _gate(finder: Finder, host: str) -> None:
    """What multiplies the heads' outputs: a sigmoid of a projection as wide as they are, or of what stands behind the
    queries."""
    names, sizes = finder.found.modules["attention"], finder.found.sizes
    width = sizes.get("num_heads", 0) * sizes.get("head_dim", 0)
    own = names.get("o_proj")
    given = [call.given for call in finder.inside(host) if call.path == f"{host}.{own}" and call.given is not None]
    factors = given[-1].factors if given else ()
    for call in finder.inside(host):
        if not is_linear(call.module) or not any(factor.gates_by(call.returned) for factor in factors):
            continue
        name = standard(names, call.path.removeprefix(f"{host}."))
        if call.shape[-1:] == (width,) and name not in _PROJECTIONS:
            finder.found.values["attention_gate"] = output_of(name, split=("num_heads", "head_dim"))
        elif name == "q_proj" and call.shape[-1:] == (2 * width,):
            finder.found.values["attention_gate"] = gate_beside(name)


_INTERIOR = (
    "attention_queries",
    "attention_keys",
    "attention_values",
    "attention_head_outputs",
    "attention_scores",
    "attention_probabilities",
)
_PROJECTIONS = {
    "q_proj": ("q_proj", "query", "q_lin", "q"),
    "k_proj": ("k_proj", "key", "k_lin", "k"),
    "v_proj": ("v_proj", "value", "v_lin", "v"),
}
_WORDS = {"q": "query", "k": "key"}


def _is_latent(path: str, key: str) -> bool:
    return path.rpartition(".")[2].startswith((f"{key}_a_", f"{key}_latent", f"{key}_down"))


def _is_expanded(path: str, key: str) -> bool:
    return path.rpartition(".")[2] == f"{key}_b_proj"
