"""Inside an MLP: its neurons, or its router and experts."""

from __future__ import annotations

from cutaway.families.derivation.finder import Finder, child_of
from cutaway.families.derivation.modules import is_activation, is_experts, is_linear, recorders
from cutaway.families.derivation.recording import BATCH, SEQ, Called
from cutaway.sites import (
    Site,
    input_of,
    output_of,
)
from cutaway.vocabulary import Host


def mlp(finder: Finder) -> None:
    """Finds what is inside the MLP, if the block has one."""
    host = finder.host("mlp")
    if not host:
        return
    values = finder.found.values
    call = finder.given_to(host, "mlp_output")
    if host == finder.block.path:
        if call is not None and call.given_shape[-1:] == (finder.width(),):
            at = call.path.removeprefix(f"{host}.")
            values["mlp_input"] = input_of(at, argument=call.argument, of="layer", rows=call.takes_rows)
    elif call is not None and call.given_shape[-1:] == (finder.width(),) and not is_linear(call.module):
        values["mlp_input"] = input_of("mlp", argument=call.argument, rows=call.takes_rows)
    module = finder.recording.model.get_submodule(host)
    if host != finder.block.path and is_experts(module):
        why = "This MLP is a mixture of experts: each has neurons of its own, in one fused product."
        finder.found.why.update(mlp_neurons=why, mlp_activation=why)
        _experts(finder, host)
    else:
        _neurons(finder, host)


def _neurons(finder: Finder, host: str) -> None:
    sublayer = finder.block.sublayers.get("mlp_output")
    names = finder.found.modules.setdefault("mlp", {})
    inside = finder.inside(host)
    if host == finder.block.path:
        inside = [call for call in inside if child_of(call.path, host)]
    linears = [call for call in inside if is_linear(call.module)]
    downs = [call for call in linears if sublayer is not None and call.returned is sublayer.call.returned]
    if not downs or downs[-1].given is None:
        return
    down, given = downs[-1], downs[-1].given
    names["down_proj"] = down.path.removeprefix(f"{host}.")
    finder.found.sizes["intermediate_size"] = down.given_shape[-1]
    finder.found.values["mlp_neurons"] = input_of("down_proj", argument=down.argument, rows=down.takes_rows)
    acts = [call for call in inside if is_activation(call.module) and call.shape == down.given_shape]
    if len(acts) == 1:
        names["act_fn"] = acts[0].path.removeprefix(f"{host}.")
        finder.found.values["mlp_activation"] = output_of("act_fn", rows=acts[0].by_rows)
    gated = bool(given.factors) and bool(acts) and acts[0].returned is not given
    for call in linears:
        own = call.path.removeprefix(f"{host}.")
        if acts and call.returned is acts[0].given:
            names["gate_proj" if gated else "up_proj"] = own
        elif gated and any(call.returned is factor for factor in given.factors):
            names["up_proj"] = own


def _experts(finder: Finder, host: str) -> None:
    """The router by transformers' own record of it; the experts by their class."""
    names = finder.found.modules.setdefault("mlp", {})
    router = recorders(finder.recording.model).get("router_logits")
    at_block = [call for call in finder.calls if router and type(call.module).__name__ in router.classes]
    inside = [call for call in at_block if call.path.startswith(f"{host}.")]
    for call in (inside or at_block)[:1]:
        assert router is not None
        of: Host | None = "mlp" if inside else "layer"
        _router(finder, call, router.index, call.path.removeprefix(f"{host if inside else finder.block.path}."), of)
        if inside:
            names["router"] = call.path.removeprefix(f"{host}.")
    for call in finder.inside(host):
        own = call.path.removeprefix(f"{host}.")
        kind = type(call.module).__name__.lower()
        if "." in own or call.shape[-1:] != (finder.width(),):
            continue
        if "shared" in own:
            names["shared_expert"] = own
            finder.found.values.setdefault("shared_expert_output", output_of("shared_expert", rows=call.by_rows))
        elif "experts" in kind:
            names["experts"] = own
            finder.found.values.setdefault("routed_output", output_of("experts", rows=call.by_rows))


def _router(finder: Finder, call: Called, index: int, own: str, of: Host | None) -> None:
    of = None if of == "mlp" else of
    tokens = BATCH * SEQ
    shapes = call.shapes
    if index >= len(shapes) or not shapes[index]:
        return

    def place(i: int) -> Site | None:
        shape = shapes[i]
        if len(shape) not in (2, 3) or (len(shape) == 2 and shape[0] != tokens):
            return None
        return output_of(own, key=i, of=of, rows=len(shape) == 2)

    logits = place(index)
    if logits is None:
        return
    values, sizes = finder.found.values, finder.found.sizes
    values["router_logits"] = logits
    count = sizes["num_experts"] = shapes[index][-1]
    rest = [i for i, shape in enumerate(shapes) if i != index and shape and shape[-1] != count and place(i)]
    whole = [i for i in rest if (node := call.all_returned[i]) is not None and node.integer]
    weights = [i for i in rest if i not in whole]
    if len(whole) == 1:
        values["expert_indices"] = _there(place(whole[0]))
        sizes["experts_per_token"] = shapes[whole[0]][-1]
    if len(weights) == 1:
        values["expert_weights"] = _there(place(weights[0]))


def _there(site: Site | None) -> Site:
    assert site is not None
    return site
