"""The norms of a block, and the stream between its sublayers."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from cutaway.families.derivation.finder import Finder, child_of, standard
from cutaway.families.derivation.modules import is_norm
from cutaway.families.derivation.recording import Called
from cutaway.families.stream import names_in, norms_in
from cutaway.sites import (
    output_of,
    stream_at,
)


def norms(finder: Finder) -> None:
    """Finds the norms before the sublayers, and where the stream between them can be read."""
    names, values = finder.found.modules["layer"], finder.found.values
    given = {name: finder.given_to(finder.host(name), value) for name, value in _ADDS.items() if name in names}
    norms = [call for call in finder.calls if is_norm(call.module) and child_of(call.path, finder.block.path)]
    norms = [call for call in norms if call.path not in _in_stream(finder)]
    mlp = given.get("mlp")
    for norm in norms:
        own = finder.block.below(norm.path)
        for name, call in given.items():
            if call is None or norm.returned is None or call.given is not norm.returned:
                continue
            values[_NORMED[name]] = output_of(own, rows=norm.by_rows)
            if name != "mlp":
                names.setdefault("input_layernorm", own)
            elif own != names.get("input_layernorm"):
                if _is_mid(finder, norm):
                    values["layer_mid"] = stream_at(own, rows=norm.takes_rows)
                if own == "post_attention_layernorm" or not _is_taken(finder, "post_attention_layernorm"):
                    names["post_attention_layernorm"] = own
    unnormed = mlp is not None and not {"layer_mid", "mlp_norm_output"} & set(values)
    if mlp is not None and unnormed and _is_mid(finder, mlp):
        values["layer_mid"] = stream_at(finder.block.below(mlp.path), rows=mlp.takes_rows)
    if not finder.block.stream:
        for name in ("layer_mid", "mlp_norm_output", "mlp_input"):
            values.pop(name, None)
    for name, site in tuple(values.items()):
        if name in ("attention_norm_output", "mixer_norm_output", "layer_mid", "mlp_norm_output"):
            values[name] = replace(site, module=standard(names, site.module))


def _in_stream(finder: Finder) -> set[str]:
    """The paths of norms that stand in the stream, behind a sublayer: what they return goes on in it."""
    norms = [norm for norm in norms_in(finder.block.stream) if list(names_in(norm)) != ["layer_input"]]
    return {f"{finder.block.path}.{norm.by}" for norm in norms}


def _is_taken(finder: Finder, name: str) -> bool:
    """Whether the block has a module of its own of this name, which then means something else."""
    return isinstance(getattr(finder.recording.model.get_submodule(finder.block.path), name, None), nn.Module)


def _is_mid(finder: Finder, call: Called) -> bool:
    """Whether what a call is given is the stream after the first sublayer and before the MLP."""
    sublayers, start = finder.block.sublayers, finder.block.call.given
    terms = {id(start): "layer_input"} if start is not None else {}
    terms |= {id(one.term): one.value for one in sublayers.values()}
    before = sorted(name for name in names_in(finder.block.stream) if not name.startswith(("mlp", "routed", "shared")))
    through = {id(c.returned): c.given for c in finder.calls if c.path in _in_stream(finder) and c.given is not None}
    node, parts = call.given, list[str]()
    pending = [node] if node is not None else []
    while pending:
        one = pending.pop()
        if id(one) in terms:
            parts.append(terms[id(one)])
        elif id(one) in through:
            pending.append(through[id(one)])
        elif one.scaled is not None:
            pending.append(one.scaled[0])
        elif one.terms:
            pending.extend(one.terms)
        else:
            return False
    return sorted(parts) == before and len(parts) > 1


_ADDS = {"self_attn": "attention_output", "mixer": "mixer_output", "mlp": "mlp_output"}
_NORMED = {"self_attn": "attention_norm_output", "mixer": "mixer_norm_output", "mlp": "mlp_norm_output"}
