"""Inside a token mixer that is no attention: its projections, and what its recurrence gives."""

from __future__ import annotations

import inspect

from cutaway.families.derivation.finder import Finder
from cutaway.families.derivation.modules import is_linear, is_norm
from cutaway.families.derivation.recording import BATCH, SEQ, Called
from cutaway.sites import (
    input_of,
)


def mixer(finder: Finder) -> None:
    """Finds what is inside the mixer, if the block has one."""
    host = finder.host("mixer")
    sublayer = finder.block.sublayers.get("mixer_output")
    if not host or sublayer is None:
        return
    names = finder.found.modules.setdefault("mixer", {})
    linears = [call for call in finder.inside(host) if is_linear(call.module)]
    ends = [call for call in linears if call.returned is sublayer.call.returned]
    if ends:
        names["out_proj"] = ends[-1].path.removeprefix(f"{host}.")
    _recurrence(finder, host, ends)
    for name in ("conv1d", "in_proj"):
        if any(call.path == f"{host}.{name}" for call in finder.calls):
            names[name] = name


def _recurrence(finder: Finder, host: str, ends: list[Called]) -> None:
    """What a recurrence gives, where a norm that takes a gate beside is all between it and the last projection."""
    if not ends or not hasattr(finder.recording.model.get_submodule(host), "A_log"):
        return
    for call in finder.inside(host):
        whole = call.given_shape == (BATCH, SEQ, ends[-1].given_shape[-1])
        if is_norm(call.module) and whole and len(inspect.signature(call.module.forward).parameters) > 1:
            own = call.path.removeprefix(f"{host}.")
            finder.found.values["ssm_output"] = input_of(own, argument=call.argument)
